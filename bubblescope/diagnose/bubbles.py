"""Busy and not busy: the union of a device's operations, and the bubbles between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.launches import NEVER, Launches
from bubblescope.timeline import DeviceOps
from bubblescope.timeline.intervals import Mask, runs
from bubblescope.timeline.tables import Int


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSpan:
    """One device's rows in `device_ops`: [first, stop), ordered by start."""

    rank: int
    device: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Bubbles of one device before they have causes; shapes (n,).

    op: row of `device_ops` that ends it. before_begin: when the operation that ran last before it
    was launched (NEVER: not known). before_incomplete: that one's replay lacks records.
    busy_start, busy_end: the busy stretches between, shape (n + 1,).
    """

    start: Int
    end: Int
    op: Int
    before_begin: Int
    before_incomplete: Mask
    busy_start: Int
    busy_end: Int


def devices(ops: DeviceOps) -> list[DeviceSpan]:
    """The devices with operations, in order of (rank, device)."""
    first, length = runs(ops.rank, ops.device)
    return [
        DeviceSpan(int(ops.rank[f]), int(ops.device[f]), f, f + n)
        for f, n in zip(first.tolist(), length.tolist(), strict=True)
    ]


def find(ops: DeviceOps, launches: Launches, span: DeviceSpan) -> Gaps:
    """The bubbles between a device's first and last operation."""
    rows = slice(span.first, span.stop)
    start, end = ops.start[rows], ops.end[rows]
    busy_until = np.maximum.accumulate(end)
    starts_dry = np.flatnonzero(start[1:] > busy_until[:-1]) + 1
    gap_start, gap_end = busy_until[starts_dry - 1], start[starts_dry]

    # Several operations can end together at a bubble's start: they are the ones that reach the
    # running maximum there. The one that was launched last ran last.
    reaching = np.flatnonzero(end == busy_until)
    reaching = reaching[np.lexsort((launches.begin[rows][reaching], busy_until[reaching]))]
    group, length = runs(busy_until[reaching])
    last = reaching[group + length - 1]
    last_begin, incomplete = launches.begin[rows][last], launches.incomplete[rows][last]
    where = np.searchsorted(busy_until[last], gap_start)
    return Gaps(
        start=gap_start,
        end=gap_end,
        op=starts_dry + span.first,
        before_begin=last_begin[where],
        before_incomplete=incomplete[where],
        busy_start=np.concatenate([start[:1], gap_end]),
        busy_end=np.append(gap_start, busy_until[-1]),
    )


def first_of_replay(launches: Launches, span: DeviceSpan) -> Mask:
    """Mask over a device's operations: the first of its launch on this device."""
    rows = launches.of_op[span.first : span.stop]
    first = np.zeros(len(rows), np.bool_)
    first[np.unique(rows, return_index=True)[1]] = True
    return first


__all__ = ["NEVER", "DeviceSpan", "Gaps", "devices", "find", "first_of_replay"]
