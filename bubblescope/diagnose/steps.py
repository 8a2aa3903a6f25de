"""Steps on a device: an operation belongs to the step that launched it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose import phases
from bubblescope.diagnose.bubbles import DeviceSpan, Gaps
from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import (
    Markers,
    Part,
    Phase,
    Pieces,
    StepTable,
    alike,
    median_ns,
)
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import Mask, covered_before
from bubblescope.timeline.tables import Int

UNKNOWN_SHARE = 100
"""A step of which more than one part in so many is unknown is not whole."""
FEW = 5
"""With fewer whole steps than this, none is called an outlier."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Where steps begin on one device. A step ends where the next begins, the last with the window.

    start: ns, strictly rising. number: as recorded, else counted from 0; what was launched before
    the first marker has the number before the first. whole: see model.StepTable, but for unknown
    time, which is not known yet. phase: a model.Phase.
    """

    start: Int
    number: Int
    whole: Mask
    phase: Int


_NONE = np.zeros(0, np.int64)
NO_BOUNDS = Bounds(_NONE, _NONE, np.zeros(0, np.bool_), _NONE)


def marker_of(markers: Markers, owner: Int, time: Int) -> Int:
    """Row of the latest marker of `owner` at or before `time`; -1 before the first, -2 unknown."""
    result = np.full(len(time), -2, np.int64)
    for who in np.unique(markers.owner).tolist():
        first, stop = np.searchsorted(markers.owner, [who, who + 1]).tolist()
        mine = np.flatnonzero(owner == who)
        place = np.searchsorted(markers.start[first:stop], time[mine], "right") - 1
        result[mine] = np.where(place >= 0, first + place, -1)
    return result


def bounds(
    timeline: Timeline,
    markers: Markers | None,
    launches: Launches,
    span: DeviceSpan,
    gaps: Gaps,
    told: Int,
) -> Bounds:
    """The steps of one device. told: the phase that each marker's step states."""
    if markers is None:
        return NO_BOUNDS
    rows = slice(span.first, span.stop)
    owner = launches.op_owner[rows]
    marker = marker_of(markers, owner, launches.begin[rows])
    # Where several processes share a device, its steps are those of the one that works most.
    marked = owner[(marker > -2) & (owner >= 0)]
    main = np.argmax(np.bincount(marked)) if len(marked) else -1
    marker[(launches.of_op[rows] < 0) | (owner != main)] = -2
    found, first, count = np.unique(marker, return_index=True, return_counts=True)
    found, first, count = (x[found > -2] for x in (found, first, count))
    if not len(found):
        return NO_BOUNDS
    op_start = timeline.device_ops.start[rows]
    begins = op_start.copy()
    begins[gaps.op - span.first] = gaps.start
    start = np.maximum.accumulate(begins[first])
    number = markers.number[np.maximum(found, 0)]
    if found[0] < 0:
        number = np.append(number[1:2] - 1 if len(number) > 1 else [-1], number[1:])

    phase = np.where(found >= 0, told[np.maximum(found, 0)], Phase.NOT_TOLD)
    lost = launches.lost
    lost_in = marker_of(markers, launches.owner[lost], timeline.host_calls.start[lost])
    whole = _whole(found, count, markers.closed_end) & ~np.isin(found, lost_in)
    if not told.any():
        step = np.where(marker > -2, np.searchsorted(found, marker), -1)
        unlike = phases.by_kernels(timeline, rows, step, whole)
        phase = np.where(unlike, Phase.OTHER, phase)
    if start[0] > op_start[0]:  # operations of unknown launch lead the window
        start = np.append(op_start[:1], start)
        number = np.append(number[:1] - 1, number)
        whole = np.append(np.False_, whole)
        phase = np.append(Phase.NOT_TOLD, phase)
    keep = np.append(start[1:] > start[:-1], True)
    return Bounds(start[keep], number[keep], whole[keep], phase[keep])


def _whole(found: Int, count: Int, closed_end: bool) -> Mask:
    """Which of the markers found (-1: the lead-in) stand for steps recorded from end to end.

    count: operations of each.
    """
    whole = found >= 0
    # Between two steps, a marker without operations means that records are missing.
    hole = (found[1:] != found[:-1] + 1) & (found[:-1] >= 0)
    whole[:-1] &= ~hole
    whole[1:] &= ~hole
    others = median_ns(count[:-1][whole[:-1]])
    if whole[-1] and others is not None and (len(found) > 2 or not closed_end):
        # The recording may have stopped within the last step, or run on past its end.
        whole[-1] = 9 * others <= 10 * count[-1] <= 11 * others
    return whole


def table(
    where: Bounds, start: Int, end: Int, gaps: Gaps, pieces: Pieces, end_of_window: int
) -> StepTable:
    """Each step's share of a device's time. start, end: the device's operations."""
    if not len(where.start):
        return no_steps()
    edges = np.append(where.start, end_of_window)
    busy = np.diff(covered_before(gaps.busy_start, gaps.busy_end, edges))
    durations = np.diff(covered_before(start, end, edges))
    parts = np.zeros((len(where.start), len(Part)), np.int64)
    step = np.searchsorted(where.start, pieces.start, "right") - 1
    # Pieces lie in bubbles, and no step begins inside a bubble.
    np.add.at(parts, (step, pieces.part.astype(np.int64)), pieces.end - pieces.start)
    whole = where.whole & (UNKNOWN_SHARE * parts[:, Part.UNKNOWN] <= np.diff(edges))
    return StepTable(
        number=where.number,
        start=edges[:-1],
        end=edges[1:],
        whole=whole,
        led=where.start > start[0],
        outlier=_outliers(np.diff(edges), whole & alike(where.phase.astype(np.int8), whole)),
        phase=where.phase.astype(np.int8),
        busy_ns=busy,
        overlapped_ns=durations - busy,
        parts_ns=parts,
    )


def no_steps() -> StepTable:
    """No steps were found."""
    none, never = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    parts = np.zeros((0, len(Part)), np.int64)
    return StepTable(none, none, none, never, never, never, none.astype(np.int8), none, none, parts)


def _outliers(length: Int, whole: Mask) -> Mask:
    """Whole steps far from the rest: over a quarter, and over eight times the usual spread, off."""
    if whole.sum() < FEW:
        return np.zeros(len(length), np.bool_)
    middle = median_ns(length[whole]) or 0
    off = np.abs(length - middle)
    spread = median_ns(off[whole]) or 0
    return whole & (4 * off > middle) & (off > 8 * spread)


def together(tables: list[StepTable]) -> StepTable:
    """Steps of several devices as one: times from the first to begin, figures added up."""
    if len(tables) == 1:
        return tables[0]
    tables = [t for t in tables if len(t.number)]
    if not tables:
        return no_steps()
    number = tables[0].number
    for t in tables[1:]:
        number = np.intersect1d(number, t.number)
    if not len(number):
        return no_steps()
    at = [np.searchsorted(t.number, number) for t in tables]
    chosen = list(zip(tables, at, strict=True))
    return StepTable(
        number,
        np.min([t.start[i] for t, i in chosen], axis=0),
        np.max([t.end[i] for t, i in chosen], axis=0),
        np.logical_and.reduce([t.whole[i] for t, i in chosen]),
        np.logical_and.reduce([t.led[i] for t, i in chosen]),
        np.logical_or.reduce([t.outlier[i] for t, i in chosen]),
        np.max([t.phase[i] for t, i in chosen], axis=0),
        np.sum([t.busy_ns[i] for t, i in chosen], axis=0),
        np.sum([t.overlapped_ns[i] for t, i in chosen], axis=0),
        np.sum([t.parts_ns[i] for t, i in chosen], axis=0),
    )
