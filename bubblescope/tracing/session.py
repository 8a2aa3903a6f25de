"""`bubblescope.trace`: record some steps of a loop from inside the program."""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar

from bubblescope.capture.assemble import assemble, from_step
from bubblescope.capture.backend import Backend, Tables
from bubblescope.capture.marks import StepMarks
from bubblescope.diagnose import Diagnosis, diagnose
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Timeline, bscope

LEAD_STEPS = 2
"""Recording starts so many steps early: what starting costs falls into these."""

P = ParamSpec("P")
R = TypeVar("R")


class trace:
    """Record `steps` steps from step `step` on, counted from 0, and diagnose them.

        with bubblescope.trace(step=200, steps=10) as t:
            for batch in requests:
                decode(batch)
                t.step()               # ends a step
                if t.done:
                    break
        t.save("decode.bscope")
        print(t.diagnosis.findings[0].title)

    As a decorator each call is one step:

        @bubblescope.trace(step=200, steps=10, save="decode.bscope")
        def decode_step(...): ...

    Enter it before the loop captures its graphs: at graph level others are invisible.

    Args:
        step: the first step to record.
        steps: how many.
        level: "graph" (true times) or "node" (the inside of graphs).
        save: a .bscope file to write when the last step is recorded; it must not exist.
        backend: what to record with; CUPTI, or torch.profiler where CUPTI is not there.
    """

    def __init__(
        self,
        step: int = 0,
        steps: int = 10,
        *,
        level: Literal["graph", "node"] = "graph",
        save: str | Path | None = None,
        backend: Backend | None = None,
    ) -> None:
        if step < 0 or steps < 1:
            raise ValueError("step must be 0 or more, steps 1 or more")
        if save is not None:
            bscope.refuse_existing(Path(save), force=False)
        self._first, self._steps, self._save = step, steps, save
        self._backend = backend if backend is not None else _Choice(level)
        self._marks = StepMarks()
        self._number = 0
        self._at = 0
        self._entered = self._recording = False
        self._timeline: Timeline | None = None
        self._diagnosis: Diagnosis | None = None
        self._failed: BubblescopeError | None = None

    # -- the loop's side ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Step 0 begins; entered again, the steps go on where they were."""
        if self.done:
            return self
        prepare = getattr(self._backend, "prepare", None)
        if prepare is not None:
            prepare()
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Recording stops, if it had not; what was recorded stays."""
        if self._recording:
            self._finish()
        elif self._timeline is None:
            abandon = getattr(self._backend, "abandon", None)
            if abandon is not None:
                abandon()

    def step(self) -> None:
        """One step has ended, and the next begins."""
        if self.done:
            return
        if self._recording:
            self._marks.add(self._number, self._at, time.time_ns())
        self._number += 1
        if self._recording and self._number >= self._first + self._steps:
            self._finish()
        else:
            self._begin()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function` with each call a step; the wrapper's `trace` is this object.

        A step of an async function lasts until its result is there. Where `save` is given and the
        program ends before the last step, what was recorded until then is saved.

        Raises:
            TypeError: it is a generator function.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__name__}: a generator's call runs nothing of it; use "
                "`with bubblescope.trace() as t` and call step() in its loop"
            )
        step: Callable[P, Any]
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def step(*args: P.args, **kwargs: P.kwargs) -> Any:
                self._enter_once()
                result = await function(*args, **kwargs)
                self.step()
                return result
        else:

            @functools.wraps(function)
            def step(*args: P.args, **kwargs: P.kwargs) -> Any:
                self._enter_once()
                result = function(*args, **kwargs)
                self.step()
                return result

        step.trace = self  # type: ignore[attr-defined]
        return step

    @property
    def done(self) -> bool:
        """Whether the last step has been recorded."""
        return self._timeline is not None or self._failed is not None

    # -- the reader's side -------------------------------------------------------------------

    @property
    def timeline(self) -> Timeline:
        """What was recorded, from one step before the first one asked for.

        Raises:
            BubblescopeError: the loop has not reached the first step, or recording failed.
        """
        if self._failed is not None:
            raise self._failed
        if self._timeline is None:
            raise BubblescopeError(
                f"nothing recorded: the loop made {self._number:,} steps and step "
                f"{self._first:,} was asked for; call step() at the end of each, or ask for less"
            )
        return self._timeline

    @property
    def diagnosis(self) -> Diagnosis:
        """Where the time of the recorded steps went.

        Raises:
            BubblescopeError: as of `timeline`, or no step ended while it was recorded.
        """
        if self._diagnosis is None:
            if not len(self.timeline.steps):
                raise BubblescopeError(
                    "no step ended while recording: call step() at the end of each; `timeline` has "
                    "what was recorded"
                )
            window = (self._first, self._first + self._steps)
            self._diagnosis = diagnose(self.timeline, window=window)
        return self._diagnosis

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the timeline as a .bscope file."""
        bscope.write(self.timeline, Path(path), force=force)

    # -- in between --------------------------------------------------------------------------

    def _enter_once(self) -> None:
        if self._entered:
            return
        self._entered = True
        self.__enter__()
        if self._save is not None:
            atexit.register(self._ended, os.getpid())

    def _ended(self, process: int) -> None:
        if os.getpid() == process:  # not in a fork of it
            self.__exit__(None, None, None)

    def _begin(self) -> None:
        if not self._recording and self._number >= self._first - LEAD_STEPS:
            self._backend.start()
            self._recording = True
        self._at = time.time_ns()

    def _finish(self) -> None:
        self._recording = False
        try:
            tables = self._backend.stop()
            timeline = assemble(self._backend, tables, self._marks.table(), _program())
            self._timeline = from_step(timeline, self._first)
        except BubblescopeError as error:
            self._failed = error
            return
        if self._save is not None:
            self.save(self._save)


class _Choice:
    """CUPTI where it is there, else torch.profiler, with the reason kept for the report."""

    def __init__(self, level: Literal["graph", "node"]) -> None:
        from bubblescope.capture.cupti import CuptiBackend

        self._cupti = CuptiBackend(level)
        self._chosen: Backend = self._cupti

    def prepare(self) -> None:
        try:
            self._cupti.prepare()
        except BubblescopeError as error:
            from bubblescope.capture.torch_profiler import TorchProfilerBackend

            self._chosen = TorchProfilerBackend(why=str(error))

    def abandon(self) -> None:
        if self._chosen is self._cupti:
            self._cupti.abandon()

    @property
    def title(self) -> str:
        return self._chosen.title

    @property
    def level(self) -> str:
        return self._chosen.level

    @property
    def lost(self) -> str:
        return self._chosen.lost

    @property
    def devices(self) -> Any:
        return getattr(self._chosen, "devices", ())

    def versions(self) -> dict[str, str]:
        versions: Callable[[], dict[str, str]] = getattr(self._chosen, "versions", dict)
        return versions()

    def start(self) -> None:
        self._chosen.start()

    def stop(self) -> Tables:
        return self._chosen.stop()


def _program() -> str:
    """The program by its own words, as in "serve.py"."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    return Path(file).name if file else "python"
