"""How far apart the host and device clocks can be, and what to do where they contradict."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose.launches import NEVER, Launches
from bubblescope.diagnose.model import Clocks
from bubblescope.diagnose.reads import SKEW_NS, Reads
from bubblescope.timeline import Timeline


def compare(timeline: Timeline, launches: Launches, reads: Reads) -> Clocks:
    """Bound the offset by causality.

    No operation starts before its launch began, and no read returned before the work that it
    waited for ended.

    Where the clocks as recorded break no bound they are left alone. Where one is broken and some
    offset breaks none, the smallest such offset is the shift.
    """
    known = launches.of_op >= 0
    early = timeline.device_ops.start[known] - launches.begin[known]
    awaited = reads.awaited != NEVER
    late = reads.end[awaited] - reads.awaited[awaited]
    low = int(-early.min()) if len(early) else None
    high = int(late.min()) if len(late) else None
    shift = 0
    contradicting = low is not None and high is not None and low > high
    if not contradicting:
        if low is not None and low > 0:
            shift = low
        elif high is not None and high < 0:
            shift = high
    if abs(shift) > SKEW_NS:
        shift = 0
    return Clocks(low, high, shift)


def too_early(timeline: Timeline, launches: Launches, clocks: Clocks) -> np.ndarray:
    """Mask of the operations that start before their launch even after the shift."""
    start = timeline.device_ops.start + clocks.shift
    return (launches.of_op >= 0) & (start < launches.begin)
