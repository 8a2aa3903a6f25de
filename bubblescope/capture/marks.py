"""Step marks: when each step began and ended on the host."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bubblescope.timeline import Steps


class StepMarks:
    """Collects steps as the loop runs them, in ns on `time.time_ns()`'s clock.

    marks = StepMarks()
    with marks.step(200):
        target.step()
    marks.table()
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int]] = []

    def add(self, number: int, begin_ns: int, end_ns: int) -> None:
        """One step that was timed elsewhere."""
        self._rows.append((number, begin_ns, end_ns))

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Time what runs inside as step `number`; one that raises is not kept."""
        begin = time.time_ns()
        yield
        self.add(number, begin, time.time_ns())

    def __len__(self) -> int:
        return len(self._rows)

    def table(self) -> Steps:
        """The steps so far, of this process as rank 0."""
        number, start, end = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        return Steps.build(
            len(self._rows), rank=0, process=os.getpid(), number=number, start=start, end=end
        )
