"""Which work that was queued before a moment ended last: what waits are measured against."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose.launches import NEVER, Launches, match_calls
from bubblescope.timeline import Timeline
from bubblescope.timeline.tables import Int

ANY_STREAM = -1


class QueuedWork:
    """Looks up the work that a process had launched before a time, and when it ended.

    Streams are looked up over all devices of the process: a wait may cross devices.
    """

    def __init__(self, timeline: Timeline, launches: Launches) -> None:
        self._timeline, self._launches = timeline, launches
        self._known: dict[tuple[int, int], tuple[Int, Int]] = {}

    def ends(self, op: Int) -> Int:
        """End of each operation (row of `device_ops`), NEVER where the row is -1."""
        known = op >= 0
        result = np.full(len(op), NEVER, np.int64)
        result[known] = self._timeline.device_ops.end[op[known]]
        return result

    def last_before(self, owner: Int, stream: Int, time: Int) -> Int:
        """The operation that ended last of those that `owner` launched in `stream` before `time`.

        Rows of `device_ops`, shape (n,); -1 where there is none. ANY_STREAM looks at all streams.
        """
        result = np.full(len(time), -1, np.int64)
        if not len(time):
            return result
        pairs, inverse = np.unique(np.stack([owner, stream], 1), axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        for number, (who, which) in enumerate(pairs.tolist()):
            begins, latest = self._launched(who, which)
            if not len(begins):
                continue
            rows = np.flatnonzero(inverse == number)
            before = np.searchsorted(begins, time[rows], "left")
            result[rows] = np.where(before > 0, latest[before - 1], -1)
        return result

    def before_event(self, rows: Int) -> Int:
        """What ended last before the event that each call (row of `host_calls`) waits for.

        Rows of `device_ops`, -1 where that is not known.
        """
        calls, owner = self._timeline.host_calls, self._launches.owner
        record = match_calls(calls, owner, owner[rows], calls.event_record[rows])
        known = (record >= 0) & (calls.event_record[rows] >= 0)
        result = np.full(len(rows), -1, np.int64)
        stream = calls.event_stream[rows[known]]
        found = self.last_before(owner[rows[known]], stream, calls.start[record[known]])
        result[known] = np.where(stream >= 0, found, -1)
        return result

    def _launched(self, owner: int, stream: int) -> tuple[Int, Int]:
        """Launch times in order, and the operation that ended last of all up to each."""
        if (owner, stream) not in self._known:
            ops, launches = self._timeline.device_ops, self._launches
            mine = (launches.op_owner == owner) & (launches.of_op >= 0)
            if stream != ANY_STREAM:
                mine &= ops.stream == stream
            rows = np.flatnonzero(mine)
            rows = rows[np.argsort(launches.begin[rows], kind="stable")]
            end = ops.end[rows]
            is_latest = end == np.maximum.accumulate(end)
            latest = np.maximum.accumulate(np.where(is_latest, np.arange(len(rows)), 0))
            self._known[owner, stream] = launches.begin[rows], rows[latest]
        return self._known[owner, stream]
