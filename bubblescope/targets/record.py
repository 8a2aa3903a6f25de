"""Records some steps of a target into a Timeline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol, runtime_checkable

from msgspec import structs

from bubblescope.capture.assemble import assemble
from bubblescope.capture.backend import Backend
from bubblescope.capture.marks import StepMarks
from bubblescope.targets.target import Target
from bubblescope.timeline import Timeline

LEAD = 2
"""Steps recorded before the first one asked for, so that its beginning is known."""
TIMED = 20
"""The last steps before the recording, whose median is taken. Earlier ones are shorter where steps
grow with the sequence (SGLang's slice on an H200: by 0.09 ms every 20 steps)."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A Timeline with its lead-in, and the steps asked for, [first, last), to diagnose it by."""

    timeline: Timeline
    window: tuple[int, int]


@runtime_checkable
class RecordsItself(Protocol):
    """A target that runs elsewhere and records itself there, at level "graph" or "node"."""

    def record(
        self, level: str, first: int, steps: int, progress: Callable[[str, float], None] = ...
    ) -> Recording:
        """Record steps [first, first + steps)."""
        ...


def record(
    target: Target,
    backend: Backend,
    *,
    first: int,
    steps: int,
    source: str = "",
    progress: Callable[[str, float], None] = lambda _stage, _share: None,
) -> Recording:
    """Run a started target up to step `first` and record `steps` steps from there.

    Step numbers count from 0 at this call. One step more is recorded on either side at least, so
    that every step asked for has its true beginning and end. The steps before say how long a step
    takes without a recorder, where there are at least `TIMED` of them. `progress` is called before
    each of these, with what is being done and the share done.
    """
    marks = StepMarks()
    lead = max(first - LEAD, 0)
    returned: list[int] = []
    for number in range(lead):
        progress("running up to the first step", number / lead)
        target.step()
        returned.append(time.monotonic_ns())
    backend.start()
    try:
        for number in range(lead, first + steps + 1):
            with marks.step(number):
                target.step()
    finally:
        tables = backend.stop()
    about = target.about()
    run = f"{target.name}: {', '.join(about[k] for k in ('model', 'acceptance') if k in about)}"
    timeline = assemble(backend, tables, marks.table(), source or target.name, {"run": run} | about)
    periods = sorted(b - a for a, b in pairwise(returned[-TIMED:]))
    if len(returned) >= TIMED:
        meta = structs.replace(timeline.meta, unprofiled_step_ns=periods[len(periods) // 2])
        timeline = replace(timeline, meta=meta)
    return Recording(timeline, (first, first + steps))
