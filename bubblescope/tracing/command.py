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

from bubblescope.capture import notes
from bubblescope.capture.join import join
from bubblescope.capture.torch_profiler import TITLE
from bubblescope.diagnose import Diagnosis, diagnose
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Timeline, bscope

INJECT = Path(__file__).parents[1] / "capture" / "inject"
MAX_OPERATIONS = 500_000
"""Records after which a process stops recording; they take about 0.5 kB of memory each."""
MAX_SECONDS = 30.0
"""Seconds from its first use of CUDA after which a process that torch.profiler records stops."""
_SPAWN = (
    "no recording survives a fork; multiprocessing.set_start_method('spawn') lets its children be "
    "recorded"
)


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
    max_seconds: float = MAX_SECONDS,
    progress: Callable[[str, float], None] | None = None,
) -> Traced:
    """Run a program to its end and diagnose its steps `step` to `step + steps`.

    Its input, output and exit code are its own. Every Python that it starts records itself through
    CUPTI, but for forked ones. One that cannot have CUPTI and imports torch is recorded by
    torch.profiler, and the recording says why and what that loses. Where the steps asked for were
    not reached, all that was recorded is diagnosed.

    Args:
        words: the program and its arguments; a .py file or -m MODULE is run with this Python.
        step: first step, counted from 0 at the first one recorded.
        steps: how many.
        level: "graph" or "node".
        marker: name of the range that begins each step; found where None.
        max_operations: records after which a process stops recording.
        max_seconds: the same for one that torch.profiler records, which cannot count them, from
            its first use of CUDA on.
        progress: called with what is being done and the share done, 0 to 1.

    Raises:
        BubblescopeError: the program cannot be started, or there is no place for its recordings.
    """
    from bubblescope.capture.cupti import library

    command = program(words)
    cupti = library.find()
    missing = "" if cupti else f"CUPTI 13.4 or later was not found ({library.INSTALL})"
    with _folder() as folder:
        plan = {
            "folder": folder,
            "root": str(Path(__file__).parents[2]),
            "level": level,
            "limit": max_operations,
            "sites": True,
            "cupti": str(cupti) if cupti else None,
            "missing": missing,
            "seconds": max_seconds,
        }
        code = run(command, environment(plan))
        found = collect(Path(folder))
    said = [*found.problems, *ending(code, bool(found.timelines))]
    exit_code = code if code >= 0 else 128 - code
    working = [t for t in found.timelines if len(t.device_ops)]
    if not working:
        return Traced(exit_code, None, None, (*said, *nothing(found, missing, code)))
    if found.forked:
        said.append(f"{_forks(found.forked)} and left no record: {_SPAWN}")
    timeline = join(working)
    diagnosis, more = at_steps(timeline, step, steps, marker, progress)
    return Traced(exit_code, timeline, diagnosis, (*said, *more))


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where the processes leave their recordings; one that outlives the program may still write."""
    try:
        return tempfile.TemporaryDirectory(prefix="bubblescope-", ignore_cleanup_errors=True)
    except OSError as error:
        raise BubblescopeError(
            f"no folder for recordings can be made ({error.strerror or error}); set TMPDIR to one "
            "that can be written to"
        ) from None


def program(words: Sequence[str]) -> list[str]:
    """The command line to run; `BubblescopeError` where there is no such program."""
    if not words:
        raise BubblescopeError("nothing to run; write the program after --: -- python serve.py")
    command = list(words)
    if command[0] == "-m" or (command[0].endswith(".py") and not shutil.which(command[0])):
        command.insert(0, sys.executable)
    if shutil.which(command[0]) is None:
        if Path(command[0]).is_file():
            raise BubblescopeError(
                f"{command[0]}: cannot be run by itself; write what runs it before it: "
                f"-- python {command[0]}"
            )
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

    A terminal sends its interrupt and quit keys to both, so these are only ignored here; others
    that would end this process are handed on.
    """

    def hand_on(number: int, _frame: object) -> None:
        child.send_signal(number)

    def leave(_number: int, _frame: object) -> None:
        pass

    handlers: dict[int, Any] = dict.fromkeys((signal.SIGINT, signal.SIGQUIT), leave)
    ours = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    handlers |= dict.fromkeys(ours, hand_on)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """What the processes of a program left: recordings, and a line each on what was not recorded.

    problems: always worth a line. idle: why processes recorded nothing, each reason once. forked:
    number of forked processes that used CUDA.
    """

    timelines: tuple[Timeline, ...]
    problems: tuple[str, ...]
    idle: tuple[str, ...]
    forked: int


def collect(folder: Path) -> Collected:
    """The recordings in a folder, and what its processes say beside them."""
    timelines, problems = [], []
    for path in sorted(folder.glob("*.bscope")):
        try:
            timelines.append(bscope.read(path))
        except BubblescopeError:
            problems.append(f"process {path.stem}: its recording is not whole")
    said = notes.read(folder)
    problems += [f"process {n.process}: {n.text}" for n in said if n.kind == "problem"]
    idle = dict.fromkeys(n.text for n in said if n.kind == "idle")
    forked = sum(n.kind == "forked" for n in said)
    return Collected(tuple(timelines), tuple(problems), tuple(idle), forked)


def nothing(found: Collected, missing: str, code: int) -> list[str]:
    """Why there is no recording, where nothing else says so."""
    none = "no GPU work was recorded"
    if found.forked:
        return [f"{none}: {_forks(found.forked)}; {_SPAWN}"]
    if code < 0 and found.idle == (notes.UNFINISHED,):
        return []
    if found.idle:
        return [f"{none}: {reason}" for reason in found.idle]
    if found.problems or code < 0:
        return []
    if missing:
        return [
            f"{none}: {missing}, and no Python below it (but for -I, -E or -S) imported torch, "
            "whose profiler is the fallback; see `bubblescope doctor`"
        ]
    return [
        f"{none}: no Python below it launched anything on CUDA; a program that is not Python, that "
        "runs as python -I, -E or -S, or that works in a forked process, cannot be recorded"
    ]


def _forks(number: int) -> str:
    return "1 forked process used CUDA" if number == 1 else f"{number:,} forked processes used CUDA"


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
    try:
        whole = diagnose(timeline, marker=marker, progress=progress)
    except BubblescopeError as error:
        if marker is None:
            raise
        diagnosis, more = at_steps(timeline, step, steps, None, progress)
        return diagnosis, [f"{error}; steps were found without it", *more]
    numbers = whole.steps.number[whole.steps.whole]
    if not len(numbers):
        return whole, [
            "no steps were found; --marker NAME names the range that begins each. The report is "
            "of everything that was recorded"
        ]
    inside = numbers[(numbers >= step) & (numbers < step + steps)]
    if not len(inside):
        longer = f"--max-{'seconds' if timeline.meta.capture == TITLE else 'operations'}"
        return whole, [
            f"step {step:,} was not recorded: there are steps {numbers[0]:,} to {numbers[-1]:,} "
            f"(marker: {whole.marker}); --step takes one of them, and {longer} records longer. "
            "The report is of everything that was recorded"
        ]
    notes = []
    if len(inside) < steps:
        notes.append(
            f"only {len(inside):,} of the {steps:,} steps from {step:,} on were recorded whole"
        )
    window = (step, step + steps)
    return diagnose(timeline, marker=marker, window=window, progress=progress), notes
