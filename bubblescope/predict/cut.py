"""A few steps cut out of a long recording: enough to compare many what-ifs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bubblescope.diagnose.bubbles import devices
from bubblescope.diagnose.model import Diagnosis, Markers, StepTable
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import runs
from bubblescope.timeline.tables import Int, Table

STEPS = 12
"""Counted steps that are looked at, from the middle of the recording."""


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """Part of a recording, with the markers and the counted steps in it.

    ops: the rows of `device_ops` in the whole recording, rising.
    """

    timeline: Timeline
    markers: Markers
    steps: StepTable
    ops: Int


def middle(timeline: Timeline, diagnosis: Diagnosis, steps: int = STEPS) -> Excerpt | None:
    """The middle counted steps, with one step before and one after; None without steps.

    The whole recording where it has no more than that.
    """
    counted = np.flatnonzero(diagnosis.steps.counted())
    markers = diagnosis.markers
    if not len(counted) or markers is None:
        return None
    if len(counted) <= steps:
        return Excerpt(timeline, markers, diagnosis.steps, np.arange(len(timeline.device_ops)))
    first = (len(counted) - steps) // 2
    chosen = counted[first : first + steps]
    number = diagnosis.steps.number[chosen]
    low, high = number[0] - 1, number[-1] + 1
    begin = int(markers.start[markers.number >= low].min(initial=np.iinfo(np.int64).max))
    after = markers.start[markers.number > high]
    stop = int(after.min()) if len(after) else int(np.iinfo(np.int64).max)
    calls = _rows(timeline.host_calls, begin, stop)
    ranges = _rows(timeline.ranges, begin, stop)
    table = diagnosis.steps
    from_ns = int(table.start[max(int(chosen[0]) - 1, 0)])
    to_ns = int(table.end[min(int(chosen[-1]) + 1, len(table.end) - 1)])
    ops = np.concatenate(
        [
            np.arange(
                span.first + np.searchsorted(start, from_ns, "left"),
                span.first + np.searchsorted(start, to_ns, "right"),
            )
            for span in devices(timeline.device_ops)
            for start in [timeline.device_ops.start[span.first : span.stop]]
        ]
    )
    part = Timeline(
        timeline.meta,
        timeline.device_ops.take(ops),
        timeline.host_calls.take(calls),
        timeline.ranges.take(ranges),
        timeline.frames,
    )
    kept = np.isin(np.arange(len(table.number)), chosen)
    return Excerpt(part, _renumbered(timeline, part, markers), table.rows(kept), ops)


def _rows(table: Table, begin: int, stop: int) -> Int:
    """Rows that start inside [begin, stop), found thread by thread; host tables only."""
    first, length = runs(table.rank, table.process, table.thread)  # type: ignore[attr-defined]
    start: Int = table.start  # type: ignore[attr-defined]
    found = [np.zeros(0, np.int64)]
    for f, n in zip(first.tolist(), length.tolist(), strict=True):  # threads
        low, high = np.searchsorted(start[f : f + n], [begin, stop]).tolist()
        found.append(np.arange(f + low, f + high))
    return np.concatenate(found)


def _renumbered(whole: Timeline, part: Timeline, markers: Markers) -> Markers:
    """The markers with the small ids that (rank, process) have in the part."""
    new = np.full(int(markers.owner.max(initial=0)) + 1, -1, np.int64)
    names = _owners(part)
    for old, name in enumerate(_owners(whole)[: len(new)]):
        new[old] = names.index(name) if name in names else -1
    kept = new[markers.owner] >= 0
    return replace(
        markers,
        owner=new[markers.owner[kept]],
        number=markers.number[kept],
        start=markers.start[kept],
    )


def _owners(timeline: Timeline) -> list[tuple[int, int]]:
    calls = timeline.host_calls
    return [
        (int(calls.rank[f]), int(calls.process[f]))
        for f in runs(calls.rank, calls.process)[0].tolist()
    ]
