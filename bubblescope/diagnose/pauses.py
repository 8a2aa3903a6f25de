"""Host stretches that come now and then, as garbage collections do, apart from the usual gaps."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose import names
from bubblescope.diagnose.communication import Place
from bubblescope.diagnose.issue import Pause
from bubblescope.diagnose.model import Doing, Part, StepTable
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import runs
from bubblescope.timeline.tables import Int

LONG_NS = 100_000
TIMES = 8
"""A pause is longer than usual by both, this much and this many times."""
RARE = 4
"""What happens in more than one step in so many is usual, however long."""
FEW = 5
"""With fewer steps than this, nothing is usual."""


def find(timeline: Timeline, places: list[Place], steps: StepTable) -> list[Pause]:
    """Every pause in the whole steps that are alike, the largest excess first.

    A pause is one stretch of a host gap in which the launching thread began and ended no record.
    It is measured against the longest stretch in the same record (or in none) of each step.
    """
    numbers = steps.number[steps.alike() & steps.whole]
    found = [pause for place in places for pause in _of_device(timeline, place, numbers)]
    return sorted(found, key=lambda pause: pause.typical_ns - pause.ns)


def _of_device(timeline: Timeline, place: Place, numbers: Int) -> list[Pause]:
    table, pieces = place.steps, place.pieces
    chosen = np.flatnonzero(np.isin(table.number, numbers))
    rows = np.flatnonzero(pieces.part == Part.HOST_GAP)
    length = (pieces.end - pieces.start)[rows]
    if len(chosen) < FEW or not (length > LONG_NS).any():
        return []
    record = _records(timeline, place, rows)
    mine = np.isin(record, np.unique(record[length > LONG_NS]))
    rows, length, record = rows[mine], length[mine], record[mine]
    step = np.searchsorted(table.start, pieces.start[rows], "right") - 1
    mine = np.isin(step, chosen)
    rows, length, record, step = rows[mine], length[mine], record[mine], step[mine]

    order = np.lexsort((-length, step, record))
    first, _ = runs(record[order], step[order])
    longest = order[first]  # of each record and step
    usual = _median(record[longest], length[longest], len(chosen))
    far = (length[longest] > usual + LONG_NS) & (length[longest] > TIMES * usual)
    group, size = runs(record[longest])
    often = np.add.reduceat(far.astype(np.int64), group) if len(group) else size
    far &= np.repeat(RARE * often <= len(chosen), size)
    return [
        Pause(
            step=int(table.number[step[i]]),
            rank=place.span.rank,
            device=place.span.device,
            ns=int(length[i]),
            typical_ns=typical,
            doing=Doing(int(pieces.doing[rows[i]])).label,
            name=_name(timeline, place, int(rows[i])),
        )
        for i, typical in zip(longest[far].tolist(), usual[far].tolist(), strict=True)
    ]


def _records(timeline: Timeline, place: Place, rows: Int) -> Int:
    """A number for what fills each piece: the name of a call, of a range, or none."""
    calls, ranges = timeline.host_calls.name, names.merged(timeline.ranges)
    call, around = place.pieces.call[rows], place.pieces.range[rows]
    record = np.zeros(len(rows), np.int64)
    in_range = around >= 0
    record[in_range] = 1 + ranges.codes[around[in_range]]
    in_call = call >= 0
    record[in_call] = 1 + len(ranges.values) + calls.codes[call[in_call]]
    return record


def _name(timeline: Timeline, place: Place, row: int) -> str:
    call, around = int(place.pieces.call[row]), int(place.pieces.range[row])
    if call >= 0:
        return timeline.host_calls.name[call]
    return timeline.ranges.name[around] if around >= 0 else ""


def _median(record: Int, length: Int, steps: int) -> Int:
    """The median over steps of each record's length; a step without it counts as 0."""
    order = np.lexsort((length, record))
    first, size = runs(record[order])
    middle = (steps - 1) // 2 - (steps - size)
    at = first + np.clip(middle, 0, size - 1)
    usual = np.where(middle >= 0, length[order][at], 0)
    result = np.empty(len(record), np.int64)
    result[order] = np.repeat(usual, size)
    return result
