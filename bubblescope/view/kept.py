"""Which rows of a recording a page shows: those around the steps that were asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import Diagnosis
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Timeline
from bubblescope.timeline.tables import Int

MOST = 5_000_000
"""Events that one page holds at most; a browser tab runs out of memory at several times that."""
_MARGIN = 20
"""One part in so many of the window is shown on either side of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of one table that are shown, in order, and the place of each row among them."""

    rows: Int
    place: Int

    @classmethod
    def of(cls, mask: np.ndarray) -> Rows:
        """The rows that a mask chooses."""
        rows = np.flatnonzero(mask)
        place = np.full(len(mask) + 1, -1, np.int64)  # the last stands for row -1
        place[rows] = np.arange(len(rows))
        return cls(rows, place)

    def at(self, rows: Int) -> Int:
        """Where the rows are on the page, -1 for those that are not and for -1."""
        return self.place[rows]


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The rows that are shown of each table."""

    ops: Rows
    calls: Rows
    ranges: Rows

    def __len__(self) -> int:
        return len(self.ops.rows) + len(self.calls.rows) + len(self.ranges.rows)


def keep(timeline: Timeline, diagnosis: Diagnosis, joined: Launches) -> Kept:
    """Everything within the window and a little around it, and the launches of all that.

    Raises:
        BubblescopeError: that is more than a page can hold.
    """
    ops, calls, ranges = timeline.device_ops, timeline.host_calls, timeline.ranges
    start = min(d.start for d in diagnosis.devices)
    end = max(d.end for d in diagnosis.devices)
    margin = (end - start) // _MARGIN
    start, end = start - margin, end + margin
    of_ops = Rows.of((ops.end >= start) & (ops.start <= end))
    launch = joined.of_op[of_ops.rows]
    # Host times are shown on the device's clock; what the window needs was launched before it.
    begin = min(start, int(calls.start[launch[launch >= 0]].min(initial=start)))
    shift = diagnosis.clocks.shift
    kept = Kept(
        of_ops,
        Rows.of((calls.end - shift >= begin) & (calls.start - shift <= end)),
        Rows.of((ranges.end - shift >= begin) & (ranges.start - shift <= end)),
    )
    if len(kept) > MOST:
        raise BubblescopeError(
            f"{timeline.meta.source}: {len(kept):,} events, more than a page can show ({MOST:,}); "
            "look at some steps, as in --window 2:8"
        )
    return kept
