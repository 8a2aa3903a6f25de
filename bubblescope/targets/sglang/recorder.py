"""In a scheduler's process: counts decode steps, times them, and records some of them."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from bubblescope.capture.assemble import assemble
from bubblescope.capture.backend import Tables
from bubblescope.capture.cupti import CuptiBackend
from bubblescope.capture.marks import StepMarks
from bubblescope.capture.torch_profiler import TorchProfilerBackend
from bubblescope.errors import BubblescopeError
from bubblescope.targets.record import LEAD, TIMED
from bubblescope.timeline import Ranges, bscope


class Recorder:
    """Armed for a generation, it counts that generation's decode steps from 0.

    A window is recorded from two steps before the first one asked for to one after the last, and
    written to `folder`, with a note of how it went, when it ends. Without a window the steps are
    timed only. torch.profiler records where CUPTI cannot be had.
    """

    def __init__(self, folder: Path, backend: Any = None) -> None:
        """Nothing is loaded before `prepare`; backend: what records, CUPTI where None."""
        self._folder, self._backend = folder, backend
        self._given = backend is not None
        self._problem = ""
        self._rank = 0
        self.armed = self.recording = False
        self._name, self._level = "", "graph"
        self._first, self._last = -1, -1
        self._mark = 0
        self._began: list[int] = []
        self._marks = StepMarks()
        self._spans: list[tuple[str, int, int, int]] = []

    def prepare(self, rank: int) -> None:
        """Take CUPTI before graphs are captured; where that fails, be ready to do without it."""
        self._rank = rank
        if self._given:
            return
        self._backend = CuptiBackend("graph", rank=rank)
        try:
            self._backend.prepare()
        except BubblescopeError as error:
            self._problem = str(error)
            self._backend = TorchProfilerBackend(why=self._problem, rank=rank)
        self._write("cupti", {"problem": self._problem})

    def arm(self, name: str, level: str, first: int, steps: int) -> None:
        """Count from here on.

        Args:
            name: of the files to write.
            level: "graph" or "node", or "" to time the steps only.
            first: first step to record.
            steps: how many.
        """
        self.disarm()
        self._name, self._level = name, level
        self._first, self._last = first, first + steps
        self._began, self._spans, self._marks = [], [], StepMarks()
        self.armed = True

    def disarm(self) -> None:
        """Count no more, and keep nothing of a recording that a generation left on."""
        self.armed = False
        if self.recording:
            self.recording = False
            self._abandon()
            self._again()

    def step(self) -> None:
        """A decode step begins."""
        number = len(self._began)
        if self.recording and self._began:
            self._marks.add(number - 1, self._mark, time.time_ns())
        if self._level and number == max(self._first - LEAD, 0):
            self._start()
        elif number == self._last + 1:
            self._finish()
            return
        self._began.append(time.monotonic_ns())
        self._mark = time.time_ns()

    def span(self, name: str, thread: int, begin: int, end: int) -> None:
        """A stage of a step, in ns since the epoch."""
        self._spans.append((name, thread, begin, end))

    def _start(self) -> None:
        fixed = self._given or self._problem
        try:
            if self._backend.level != self._level and not fixed:
                self._backend.abandon()
                self._backend = CuptiBackend(
                    "node" if self._level == "node" else "graph", rank=self._rank
                )
            self._backend.start()
        except Exception as error:  # whatever it is, the engine must go on
            self._fail(self._because(error))
            return
        self.recording = True

    def _finish(self) -> None:
        """Write what there is; the engine goes on."""
        self.armed = False
        said: dict[str, Any] = {"problem": "", "began": self._began}
        if self.recording:
            self.recording = False
            try:
                tables = self._backend.stop()
                timeline = assemble(
                    self._backend, self._tables(tables), self._table(), "sglang", rank=self._rank
                )
                bscope.write(timeline, self._folder / f"{self._name}-{self._rank}.bscope")
                said["unprofiled_step_ns"] = self._unprofiled()
            except Exception as error:  # whatever it is, the engine must go on
                said["problem"] = self._because(error)
            self._again()
        self._write(self._name, said)

    def _again(self) -> None:
        """Take CUPTI back: later windows of this engine are to see the same graphs."""
        if not self._given and not self._problem:
            with suppress(BubblescopeError):  # the next window says what is wrong
                self._backend.prepare()

    def _abandon(self) -> None:
        """End a recording of which nothing is kept."""
        if self._problem:
            with suppress(BubblescopeError):
                self._backend.stop()
        else:
            self._backend.abandon()

    def _because(self, error: Exception) -> str:
        """What went wrong; where torch.profiler stood in, both reasons."""
        if isinstance(error, BubblescopeError):
            said = str(error)
        else:
            said = f"{type(error).__name__}: {error}"
        if not self._problem or said.startswith(self._problem):
            return said
        return f"{self._problem}; in its place, torch.profiler: {said}"

    def _fail(self, problem: str) -> None:
        self.armed = False
        self._write(self._name, {"problem": problem})

    def _unprofiled(self) -> int | None:
        """Median step before recording began, of the last ones, where there were enough."""
        before = self._began[: max(self._first - LEAD, 0)]
        periods = sorted(b - a for a, b in pairwise(before[-TIMED:]))
        return periods[len(periods) // 2] if len(before) >= TIMED else None

    def _tables(self, tables: Tables) -> Tables:
        name, thread, begin, end = zip(*self._spans, strict=True) if self._spans else ((),) * 4
        spans = Ranges.build(
            len(self._spans),
            rank=self._rank,
            process=os.getpid(),
            thread=thread,
            kind="annotation",
            name=list(name),
            start=begin,
            end=end,
        )
        return Tables(
            tables.device_ops,
            tables.host_calls,
            Ranges.concat([tables.ranges, spans]),
            tables.frames,
            tables.health,
            tables.about,
        )

    def _table(self) -> Any:
        table = self._marks.table()
        return type(table).build(
            len(table),
            rank=self._rank,
            process=table.process,
            number=table.number,
            start=table.start,
            end=table.end,
        )

    def _write(self, name: str, said: dict[str, Any]) -> None:
        """Whole or not at all: the parent looks for it."""
        path = self._folder / f"{name}-{self._rank}.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(said), encoding="utf-8")
        draft.replace(path)
