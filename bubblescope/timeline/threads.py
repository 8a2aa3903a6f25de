"""Host threads by small ids, and the rows of each."""

from __future__ import annotations

import numpy as np

from bubblescope.timeline.intervals import runs
from bubblescope.timeline.tables import Int
from bubblescope.timeline.timeline import Timeline

NO_ROWS = slice(0, 0)


class Threads:
    """The host threads that made calls, numbered in the Timeline's order.

    of_call: each call's thread, shape (calls,), rising.
    """

    def __init__(self, timeline: Timeline) -> None:
        calls, ranges = timeline.host_calls, timeline.ranges
        first, length = runs(calls.rank, calls.process, calls.thread)
        self.of_call: Int = np.repeat(np.arange(len(first)), length)
        self._keys = [
            (int(calls.rank[f]), int(calls.process[f]), int(calls.thread[f])) for f in first
        ]
        self._calls = [slice(f, f + n) for f, n in zip(first, length, strict=True)]
        self._ids = {key: number for number, key in enumerate(self._keys)}
        first, length = runs(ranges.rank, ranges.process, ranges.thread)
        self._ranges = {
            (int(ranges.rank[f]), int(ranges.process[f]), int(ranges.thread[f])): slice(f, f + n)
            for f, n in zip(first.tolist(), length.tolist(), strict=True)
        }

    def id_of(self, rank: int, process: int, thread: int) -> int | None:
        """The number of a thread, None if it made no call."""
        return self._ids.get((rank, process, thread))

    def rank(self, thread: int) -> int:
        """The rank that a thread belongs to."""
        return self._keys[thread][0]

    def process(self, thread: int) -> tuple[int, int]:
        """The (rank, process) that a thread belongs to."""
        return self._keys[thread][:2]

    def calls(self, thread: int) -> slice:
        """Rows of `host_calls` of one thread."""
        return self._calls[thread]

    def ranges(self, thread: int) -> slice:
        """Rows of `ranges` of one thread."""
        return self._ranges.get(self._keys[thread], NO_ROWS)
