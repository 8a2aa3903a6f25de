"""Runs a job in a process of its own, so that every start is a fresh one and gives all back."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from bubblescope.ablate import jobs
from bubblescope.errors import BubblescopeError

PATIENCE_S = 45.0
"""How long a process may take to stop its target before it is killed; more than any target takes
(`targets.sglang.link.STOP_S`), else nobody is left to end the engine."""


def in_a_process(job: jobs.Job) -> Iterator[jobs.Message]:
    """The messages of `measure.carry_out` in another process, which is gone when this is closed.

    Raises:
        BubblescopeError: the job cannot be done, or its process ended.
    """
    command = [sys.executable, "-m", "bubblescope.ablate.child"]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it has ended: its exit code says more
                child.stdin.write(msgspec.json.encode(job) + b"\n")
                child.stdin.flush()
            for line in child.stdout:
                message = msgspec.json.decode(line, type=jobs.Message)
                if isinstance(message, jobs.Failed):
                    raise BubblescopeError(message.message)
                yield message
            if child.wait():
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip().splitlines()
                raise BubblescopeError(
                    f"a process of target {job.target} ended with exit code {child.returncode}: "
                    f"{said[-1] if said else 'it said nothing'}"
                )
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
