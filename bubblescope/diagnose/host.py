"""What the launching thread was doing while the device ran dry: the host part of bubbles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bubblescope.diagnose.model import Doing, Part
from bubblescope.diagnose.reads import Reads
from bubblescope.timeline import Timeline, api
from bubblescope.timeline.intervals import IntervalIndex
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads

WAITS_FOR_THREAD = re.compile(
    r"method acquire of _thread|pthread_(cond_(timed|clock)?wait|mutex_(timed|clock)?lock"
    r"|rwlock_(timed|clock)?(rd|wr)lock|barrier_wait|(timed|clock)?join(_np)?\b)"
    r"|^(sem_(timed|clock)?wait|futex)\b"
)
"""Records that say of themselves that their thread waits for another one."""


@dataclass(frozen=True, slots=True, eq=False)
class HostPieces:
    """The host parts of bubbles cut by what the thread did; columns as in model.Pieces."""

    bubble: Int
    start: Int
    end: Int
    part: npt.NDArray[np.int8]
    doing: npt.NDArray[np.int8]
    call: Int
    range: Int


class HostActivity:
    """What each thread did at any time, prepared once a thread and asked once a device."""

    def __init__(self, timeline: Timeline, threads: Threads, reads: Reads) -> None:
        self._timeline, self._threads, self._reads = timeline, threads, reads
        calls, ranges = timeline.host_calls, timeline.ranges
        self._allocator = calls.name.where(api.is_allocator)
        self._waits = ranges.name.where(lambda name: bool(WAITS_FOR_THREAD.search(name)))
        self._overhead = ranges.kind.where(lambda kind: kind == "overhead")
        self._doing = np.full(len(ranges), Doing.ANNOTATION, np.int8)
        self._doing[ranges.kind.where(lambda kind: kind == "op")] = Doing.OP
        self._doing[ranges.kind.where(lambda kind: kind == "python")] = Doing.PYTHON
        self._doing[ranges.kind.where(lambda kind: kind == "os")] = Doing.OS
        self._indexes: dict[int, tuple[Int, IntervalIndex, Int, IntervalIndex]] = {}
        self._overheads: dict[int, tuple[Int, IntervalIndex]] = {}

    def pieces(self, thread: int, bubble: Int, start: Int, end: Int) -> HostPieces:
        """Cut [start, end) of each bubble by what `thread` did; shapes (n,), in time order."""
        call_rows, calls, range_rows, ranges = self._index(thread)
        overhead_rows, overheads = self._overhead_of(self._threads.rank(thread))
        mine = slice(*np.searchsorted(self._reads.thread, [thread, thread + 1]).tolist())
        reads = IntervalIndex(self._reads.begin[mine], self._reads.end[mine])

        edges = [x for i in (calls, ranges, overheads, reads) for x in (i.start, i.end)]
        at, inside = _cut(start, end, edges)
        until = np.append(at[1:], 0)
        last = np.append(inside[1:] != inside[:-1], True)
        until[last] = end[inside[last]]

        call, range_ = _row(call_rows, calls.innermost(at)), _row(range_rows, ranges.innermost(at))
        overhead = _row(overhead_rows, overheads.innermost(at))
        in_read = reads.innermost(at) >= 0
        waits = ~in_read & _where(self._waits, range_, False)
        in_call = call >= 0
        part = np.select([in_read, waits], [Part.READ_TAIL, Part.HOST_WAIT], Part.HOST_GAP)
        in_gap = part == Part.HOST_GAP
        doing = np.select(
            [~in_gap, _where(self._allocator, call, False), in_call, overhead >= 0],
            [0, Doing.ALLOCATOR, Doing.CUDA_CALL, Doing.PROFILER],
            _where(self._doing, range_, Doing.NOT_RECORDED),
        )
        # What owns a piece is the call where there is one; the range is then the op that asked.
        by_range = np.where(in_gap & ~in_call & (overhead >= 0), overhead, range_)
        return HostPieces(
            bubble=bubble[inside],
            start=at,
            end=until,
            part=part.astype(np.int8),
            doing=doing.astype(np.int8),
            call=np.where(in_gap | in_read, call, -1),
            range=by_range,
        )

    def _index(self, thread: int) -> tuple[Int, IntervalIndex, Int, IntervalIndex]:
        if thread not in self._indexes:
            calls, ranges = self._timeline.host_calls, self._timeline.ranges
            rows, within = self._threads.calls(thread), self._threads.ranges(thread)
            of_thread = np.flatnonzero(~self._overhead[within]) + within.start
            self._indexes[thread] = (
                np.arange(rows.start, rows.stop),
                IntervalIndex(calls.start[rows], calls.end[rows]),
                of_thread,
                IntervalIndex(ranges.start[of_thread], ranges.end[of_thread]),
            )
        return self._indexes[thread]

    def _overhead_of(self, rank: int) -> tuple[Int, IntervalIndex]:
        """The profiler's own work, whatever thread it names, since it often names none."""
        if rank not in self._overheads:
            ranges = self._timeline.ranges
            rows = np.flatnonzero(self._overhead & (ranges.rank == rank))
            rows = rows[np.lexsort((-ranges.end[rows], ranges.start[rows]))]
            self._overheads[rank] = rows, IntervalIndex(ranges.start[rows], ranges.end[rows])
        return self._overheads[rank]


def _row(rows: Int, index: Int) -> Int:
    if not len(rows):
        return np.full(len(index), -1, np.int64)
    return np.where(index >= 0, rows[index], -1)


def _cut(start: Int, end: Int, edges: list[Int]) -> tuple[Int, Int]:
    """Cut the disjoint, ordered, non-empty intervals at every edge inside them.

    Returns where each piece starts and the interval that it lies in.
    """
    points = [start]
    for edge in edges:
        if not len(edge):
            continue
        where = np.searchsorted(start, edge, "right") - 1
        points.append(edge[(where >= 0) & (edge < end[where]) & (edge > start[where])])
    at = np.unique(np.concatenate(points))
    return at, np.searchsorted(start, at, "right") - 1


def _where(values: npt.NDArray[Any], rows: Int, absent: int) -> npt.NDArray[Any]:
    """values[rows], and `absent` where the row is -1."""
    result = np.full(len(rows), absent, values.dtype)
    known = rows >= 0
    result[known] = values[rows[known]]
    return result
