"""When the work that was queued before a moment ended: what waits are measured against."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose.launches import NEVER, Launches, match_calls
from bubblescope.timeline import Timeline
from bubblescope.timeline.tables import Int

ANY_STREAM = -1


class QueuedWork:
    """Looks up the end of the work that a process had launched before a time.

    Streams are looked up over all devices of the process: a wait may cross devices.
    """

    def __init__(self, timeline: Timeline, launches: Launches) -> None:
        self._timeline, self._launches = timeline, launches
        self._known: dict[tuple[int, int], tuple[Int, Int]] = {}

    def end_before(self, owner: Int, stream: Int, time: Int) -> Int:
        """Latest end of the operations that `owner` launched in `stream` before `time`.

        Shapes (n,); NEVER where there is none. ANY_STREAM looks at all streams.
        """
        result = np.full(len(time), NEVER, np.int64)
        if not len(time):
            return result
        pairs, inverse = np.unique(np.stack([owner, stream], 1), axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        for number, (who, which) in enumerate(pairs.tolist()):
            begins, ends = self._launched(who, which)
            if not len(begins):
                continue
            rows = np.flatnonzero(inverse == number)
            before = np.searchsorted(begins, time[rows], "left")
            result[rows] = np.where(before > 0, ends[before - 1], NEVER)
        return result

    def event_end(self, rows: Int) -> Int:
        """End of the work before the event that each call (row of `host_calls`) waits for."""
        calls, owner = self._timeline.host_calls, self._launches.owner
        record = match_calls(calls, owner, owner[rows], calls.event_record[rows])
        known = (record >= 0) & (calls.event_record[rows] >= 0)
        result = np.full(len(rows), NEVER, np.int64)
        stream = calls.event_stream[rows[known]]
        result[known] = self.end_before(owner[rows[known]], stream, calls.start[record[known]])
        result[known] = np.where(stream >= 0, result[known], NEVER)
        return result

    def _launched(self, owner: int, stream: int) -> tuple[Int, Int]:
        """Launch times in order, and the latest end of all up to each."""
        if (owner, stream) not in self._known:
            ops, launches = self._timeline.device_ops, self._launches
            mine = (launches.op_owner == owner) & (launches.of_op >= 0)
            if stream != ANY_STREAM:
                mine &= ops.stream == stream
            begin, end = launches.begin[mine], ops.end[mine]
            order = np.argsort(begin, kind="stable")
            self._known[owner, stream] = begin[order], np.maximum.accumulate(end[order])
        return self._known[owner, stream]
