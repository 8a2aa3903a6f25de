"""Child processes that may crash or hang without harm to the one that asks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Output:
    """What a child left: its exit code (negative: the signal that ended it), and its words.

    error: why there is no answer, in a few words, "" where the child ended by itself.
    """

    code: int
    out: str = ""
    err: str = ""
    error: str = ""


def run(arguments: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Output:
    """Run a program and its children for at most `timeout_s`, with nothing on its input.

    A child that is stuck in the driver cannot even be killed: it is then left behind.
    """
    try:
        child = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
        )
    except OSError as error:
        return Output(-1, error=f"could not be started: {error.strerror or error}")
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=_GRACE_S)
        return Output(-1, error=f"no answer in {timeout_s:.3g} s")
    killed = f"ended by {_signal(-child.returncode)}" if child.returncode < 0 else ""
    return Output(child.returncode, _text(out), _text(err), killed)


def last_line(output: Output) -> str:
    """Why a child failed: the last thing that it said."""
    if output.error:
        return output.error
    lines = (output.err.strip() or output.out.strip()).splitlines()
    return lines[-1].strip() if lines else f"exit code {output.code}"


def _text(words: bytes) -> str:
    return words.decode("utf-8", "replace")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
