"""`bubblescope trace -- PROGRAM`: run any program, record its Pythons, find its steps."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bubblescope.capture.join import join
from bubblescope.diagnose import Diagnosis, diagnose
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Timeline, bscope

INJECT = Path(__file__).parents[1] / "capture" / "inject"
MAX_OPERATIONS = 500_000
"""Records after which a process stops recording; they take about 0.5 kB of memory each."""


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """What came of a run.

    exit_code: the program's own; 128 + N where signal N ended it, as shells count.
    timeline, diagnosis: None where nothing was recorded. notes: one line each, for stderr.
    """

    exit_code: int
    timeline: Timeline | None
    diagnosis: Diagnosis | None
    notes: tuple[str, ...]


def trace(
    words: Sequence[str],
    *,
    step: int = 200,
    steps: int = 10,
    level: Literal["graph", "node"] = "graph",
    marker: str | None = None,
    max_operations: int = MAX_OPERATIONS,
    progress: Callable[[str, float], None] | None = None,
) -> Traced:
    """Run a program to its end and diagnose its steps `step` to `step + steps`.

    Its input, output and exit code are its own. Every Python that it starts records itself, but
    for forked ones. Where these steps were not reached, all that was recorded is diagnosed.

    Args:
        words: the program and its arguments; a .py file or -m MODULE is run with this Python.
        step: first step, counted from 0 at the first one recorded.
        steps: how many.
        level: "graph" or "node".
        marker: name of the range that begins each step; found where None.
        max_operations: records after which a process stops recording.
        progress: called with what is being done and the share done, 0 to 1.

    Raises:
        BubblescopeError: the program cannot be started, or CUPTI is not there.
    """
    from bubblescope.capture.cupti import library

    command = program(words)
    cupti = library.find()
    if cupti is None:
        raise BubblescopeError(
            f"nothing was run: CUPTI 13.4 or later was not found; {library.INSTALL}, and see "
            "`bubblescope doctor`"
        )
    with tempfile.TemporaryDirectory(prefix="bubblescope-") as folder:
        plan = {
            "folder": folder,
            "root": str(Path(__file__).parents[2]),
            "level": level,
            "limit": max_operations,
            "sites": True,
            "cupti": str(cupti),
        }
        code = run(command, environment(plan))
        timelines, problems = collect(Path(folder))
    notes = [*problems, *ending(code, bool(timelines))]
    exit_code = code if code >= 0 else 128 - code
    working = [t for t in timelines if len(t.device_ops)]
    if not working:
        if not problems and code >= 0:
            notes.append(
                "no GPU work was recorded: no Python below it launched anything on CUDA; a "
                "program that is not Python, works in a forked process or leaves by os._exit "
                "cannot be recorded"
            )
        return Traced(exit_code, None, None, tuple(notes))
    timeline = join(working)
    diagnosis, more = at_steps(timeline, step, steps, marker, progress)
    return Traced(exit_code, timeline, diagnosis, (*notes, *more))


def program(words: Sequence[str]) -> list[str]:
    """The command line to run; `BubblescopeError` where there is no such program."""
    if not words:
        raise BubblescopeError("nothing to run; write the program after --: -- python serve.py")
    command = list(words)
    if command[0] == "-m" or (command[0].endswith(".py") and not shutil.which(command[0])):
        command.insert(0, sys.executable)
    if shutil.which(command[0]) is None:
        raise BubblescopeError(f"{command[0]}: no such program; give its path")
    return command


def environment(plan: dict[str, Any]) -> dict[str, str]:
    """The program's environment: ours first on PYTHONPATH, its own kept behind."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([str(INJECT), *filter(None, [env.get("PYTHONPATH")])])
    env["BUBBLESCOPE_CHILD"] = json.dumps(plan)
    if plan["cupti"]:
        env.setdefault("NVTX_INJECTION64_PATH", plan["cupti"])
    return env


def run(command: Sequence[str], env: dict[str, str]) -> int:
    """Run it in this terminal; its return code, -N where signal N ended it."""
    try:
        child = subprocess.Popen(command, env=env)
    except OSError as error:
        raise BubblescopeError(f"{command[0]}: cannot be started: {error.strerror}") from None
    with _signals_to(child):
        return child.wait()


@contextmanager
def _signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """The program decides what a signal does; what it recorded is read in any case.

    A terminal sends Ctrl-C to both, so that one is only ignored here; others are handed on.
    """

    def hand_on(number: int, _frame: object) -> None:
        child.send_signal(number)

    handlers: dict[int, Any] = {signal.SIGINT: lambda _number, _frame: None}
    handlers |= {signal.SIGTERM: hand_on, signal.SIGHUP: hand_on}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def collect(folder: Path) -> tuple[list[Timeline], list[str]]:
    """The recordings in a folder, and what went wrong in processes that made none."""
    timelines, problems = [], []
    for path in sorted(folder.glob("*.bscope")):
        try:
            timelines.append(bscope.read(path))
        except BubblescopeError:
            problems.append(f"process {path.stem}: its recording is not whole")
    for path in sorted(folder.glob("*.json")):
        note = json.loads(path.read_text(encoding="utf-8"))
        if note["problem"]:
            problems.append(f"process {note['process']}: {note['problem']}")
    return timelines, problems


def ending(code: int, recorded: bool) -> list[str]:
    """One line on a program that did not end with 0."""
    if code == 0:
        return []
    if code < 0:
        how = f"the program was ended by {signal.Signals(-code).name}"
    else:
        how = f"the program ended with exit code {code}"
    if recorded:
        return [f"{how}; what it did until then was recorded"]
    return [f"{how}, and no recording was written"]


def at_steps(
    timeline: Timeline,
    step: int,
    steps: int,
    marker: str | None,
    progress: Callable[[str, float], None] | None = None,
) -> tuple[Diagnosis, list[str]]:
    """Diagnose the steps asked for, or everything where they are not there, and say so."""
    whole = diagnose(timeline, marker=marker, progress=progress)
    numbers = whole.steps.number[whole.steps.whole]
    if not len(numbers):
        return whole, [
            "no steps were found; --marker NAME names the range that begins each. The report is "
            "of everything that was recorded"
        ]
    inside = numbers[(numbers >= step) & (numbers < step + steps)]
    if not len(inside):
        return whole, [
            f"step {step:,} was not recorded: there are steps {numbers[0]:,} to {numbers[-1]:,} "
            f"(marker: {whole.marker}); --step takes one of them, and --max-operations records "
            "longer. The report is of everything that was recorded"
        ]
    notes = []
    if len(inside) < steps:
        notes.append(
            f"only {len(inside):,} of the {steps:,} steps from {step:,} on were recorded whole"
        )
    window = (step, step + steps)
    return diagnose(timeline, marker=marker, window=window, progress=progress), notes
