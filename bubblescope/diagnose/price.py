"""The price of a blocking read: the device idle that its lateness caused, counted once."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bubblescope.diagnose.model import Bubbles, Part, Pieces
from bubblescope.diagnose.parts import Rules
from bubblescope.diagnose.reads import Reads
from bubblescope.timeline.intervals import Mask, runs
from bubblescope.timeline.tables import Int

LATE_PARTS = (Part.READ_TAIL, Part.HOST_GAP, Part.LAUNCH_CALL)
"""The nanoseconds that a late host is answerable for, and a read's debt is charged to."""


@dataclass(frozen=True, slots=True, eq=False)
class LateTime:
    """Host-late stretches of one device's bubbles, in host time; one row a piece.

    thread: of the launch that ended the bubble, and launch: when that began. device: position in
    the diagnosis. bubble: row of that device's Bubbles.
    """

    thread: Int
    launch: Int
    start: Int
    end: Int
    part: Int
    device: Int
    bubble: Int


@dataclass(frozen=True, slots=True, eq=False)
class LateBubbles:
    """Bubbles that a late host ended: the launching thread, when it launched, their length."""

    thread: Int
    launch: Int
    length: Int
    device: Int


@dataclass(frozen=True, slots=True, eq=False)
class Charges:
    """What reads are charged with: one row a stretch of a bubble, ns of it; columns (rows,).

    read: row of the reads. device: position in the diagnosis. bubble: row of that device's Bubbles.
    """

    read: Int
    device: Int
    bubble: Int
    part: Int
    ns: Int


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Shapes (reads, devices), in ns.

    closed: shape (reads,): whether all that a read could expose was recorded. of_part: how much of
    each Part the charges lie in, shape (len(Part),).
    """

    exposed: Int
    after: Int
    closed: Mask
    of_part: Int


def late_time(
    pieces: Pieces, bubbles: Bubbles, threads: Int, begin: Int, device: int, shift: int
) -> LateTime:
    """The pieces of a device's bubbles that reads can be charged with.

    begin: when each operation's launch began, by row of `device_ops`.
    """
    rows = np.flatnonzero(np.isin(pieces.part, LATE_PARTS))
    return LateTime(
        threads[bubbles.launch[pieces.bubble[rows]]],
        begin[bubbles.op[pieces.bubble[rows]]],
        pieces.start[rows] + shift,
        pieces.end[rows] + shift,
        pieces.part[rows].astype(np.int64),
        np.full(len(rows), device),
        pieces.bubble[rows],
    )


def late_bubbles(
    rules: Rules, pieces: Pieces, bubbles: Bubbles, threads: Int, begin: Int, device: int
) -> LateBubbles:
    """The bubbles of a device for which the host was late; of their length, what `pieces` hold.

    pieces: those inside the window. What of them is unknown is not idle.
    """
    idle = np.zeros(len(bubbles.start), np.int64)
    known = pieces.part != Part.UNKNOWN
    np.add.at(idle, pieces.bubble[known], (pieces.end - pieces.start)[known])
    rows = np.flatnonzero(rules.late & (idle > 0))
    return LateBubbles(
        threads[bubbles.launch[rows]],
        begin[bubbles.op[rows]],
        idle[rows],
        np.full(len(rows), device),
    )


def charges(reads: Reads, waited: Mask, late: list[LateTime]) -> Charges:
    """The idle that each read that waited is charged with, until its wait is spent.

    A read that waited makes its thread late by end - begin. The late time of bubbles that the
    thread's later launches end is charged to the latest such read, in time order.
    """
    rows = np.flatnonzero(waited)
    if not len(rows) or not late:
        return Charges(*(np.zeros(0, np.int64) for _ in range(5)))
    debts = _Debts(reads.thread[rows], reads.begin[rows])
    thread, launch, start, end, part, device, bubble = (
        np.concatenate([getattr(x, f.name) for x in late]) for f in fields(LateTime)
    )
    piece, start, end, debt = debts.split(thread, start, end)
    # A blocking copy launches too: only later launches are late because of it.
    debt = debts.before(debt, (reads.end[rows])[debt] > launch[piece])
    kept = debt >= 0
    piece, start, end, debt = piece[kept], start[kept], end[kept], debt[kept]
    order = np.lexsort((device[piece], start, debt))
    piece, debt, length = piece[order], debt[order], (end - start)[order]
    wait = (reads.end - reads.begin)[rows]
    first, count = runs(debt)
    before = np.cumsum(length) - length
    spent = before - np.repeat(before[first], count)
    charged = np.clip(wait[debt] - spent, 0, length)
    some = charged > 0
    piece, debt, charged = piece[some], debt[some], charged[some]
    return Charges(rows[debt], device[piece], bubble[piece], part[piece], charged)


def charge(
    reads: Reads,
    waited: Mask,
    late: list[LateTime],
    bubbles: list[LateBubbles],
) -> Prices:
    """The price of each read: its charges, and all idle until its thread's next wait."""
    devices = len(late)
    exposed = np.zeros((len(reads.begin), devices), np.int64)
    after = np.zeros_like(exposed)
    closed = np.ones(len(reads.begin), np.bool_)
    of_part = np.zeros(len(Part), np.int64)
    rows = np.flatnonzero(waited)
    if not len(rows) or not devices:
        return Prices(exposed, after, closed, of_part)
    wait = (reads.end - reads.begin)[rows]
    charged = charges(reads, waited, late)
    np.add.at(exposed, (charged.read, charged.device), charged.ns)
    np.add.at(of_part, charged.part, charged.ns)

    thread, launch, length, device = (
        np.concatenate([getattr(x, name) for x in bubbles])
        for name in ("thread", "launch", "length", "device")
    )
    # Ordered by begin, the reads of a thread are ordered by end too: none overlap.
    debt = _Debts(reads.thread[rows], reads.end[rows]).latest(thread, launch)
    known = debt >= 0
    np.add.at(after, (rows[debt[known]], device[known]), length[known])

    # The last wait of a thread may have gone on to expose idle that was not recorded any more.
    is_last = np.append(reads.thread[rows][1:] != reads.thread[rows][:-1], True)
    closed[rows] = ~is_last | (exposed[rows].sum(1) == wait)
    return Prices(exposed, after, closed, of_part)


class _Debts:
    """Looks up, on each thread, the latest of its marks at or before a time."""

    def __init__(self, thread: Int, mark: Int) -> None:
        self._bounds = {
            int(thread[f]): (f, f + n)
            for f, n in zip(*(x.tolist() for x in runs(thread)), strict=True)
        }
        self._mark = mark

    def latest(self, thread: Int, time: Int) -> Int:
        """Row of the latest mark of `thread` at or before `time`, -1 where there is none."""
        result = np.full(len(time), -1, np.int64)
        for number, (first, stop) in self._bounds.items():
            mine = np.flatnonzero(thread == number)
            place = np.searchsorted(self._mark[first:stop], time[mine], "right") - 1
            result[mine] = np.where(place >= 0, first + place, -1)
        return result

    def before(self, row: Int, step_back: Mask) -> Int:
        """The mark before each row's on the same thread where asked for, -1 before the first."""
        first = np.zeros(len(self._mark), np.bool_)
        first[[f for f, _ in self._bounds.values()]] = True
        return np.where(step_back, np.where(first[row], -1, row - 1), row)

    def split(self, thread: Int, start: Int, end: Int) -> tuple[Int, Int, Int, Int]:
        """Cut [start, end) at every mark of its thread; what lies before all marks is dropped.

        Returns, a row a piece: the interval it came from, its start and end, and the row of the
        latest mark at its start.
        """
        low, high = self.latest(thread, start), self.latest(thread, end - 1)
        for number, (first, _) in self._bounds.items():
            # Begins before the thread's first mark, ends after it: starts at that mark.
            low[(thread == number) & (low < 0) & (high >= 0)] = first
        known = np.flatnonzero(high >= 0)
        count = (high - low + 1)[known]
        piece = np.repeat(known, count)
        offset = np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count)
        debt = low[piece] + offset
        cut_start = np.maximum(start[piece], self._mark[debt])
        next_mark = np.append(self._mark[1:], 0)[debt]
        cut_end = np.where(debt < high[piece], next_mark, end[piece])
        return piece, cut_start, cut_end, debt
