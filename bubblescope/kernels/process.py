"""Runs a process that measures, and takes its answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bubblescope.errors import BubblescopeError
from bubblescope.kernels.asked import Answer, Asked

TIMEOUT_S = 900.0
Wrap = Callable[[list[str]], list[str]]


def ask(asked: Asked, *, under: Wrap | None = None, timeout_s: float = TIMEOUT_S) -> Answer:
    """The answer of a child process.

    Args:
        asked: what it is to do.
        under: makes its command line that of a tool which starts it, where one does.
        timeout_s: after so long the child and all that it started are ended.

    Raises:
        BubblescopeError: it could not do it, ended without an answer, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="bubblescope-") as folder:
        question, answer = Path(folder, "asked.json"), Path(folder, "answer.json")
        question.write_bytes(msgspec.json.encode(asked))
        words = [sys.executable, "-m", "bubblescope.kernels.child", str(question), str(answer)]
        said = _run(words if under is None else under(words), timeout_s)
        if answer.is_file():
            told = msgspec.json.decode(answer.read_bytes(), type=Answer)
            if told.error:
                raise BubblescopeError(told.error)
            return told
    raise BubblescopeError(f"the process that measures ended without an answer: {said}")


def _run(words: Sequence[str], timeout_s: float) -> str:
    """Run it, and return the last line of what it printed on either stream."""
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that what a tool started ends with it
        )
    except OSError as error:
        raise BubblescopeError(f"{words[0]}: cannot be started: {error.strerror}") from None
    try:
        printed, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise BubblescopeError(
            f"the process that measures took over {timeout_s:g} s; ask for fewer --steps, "
            "--layers or --dram-launches"
        ) from None
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    lines = printed.decode(errors="replace").strip().splitlines()
    code = child.returncode
    ended = f"exit code {code}" if code >= 0 else f"signal {-code}"
    return f"{lines[-1]} ({ended})" if lines else ended
