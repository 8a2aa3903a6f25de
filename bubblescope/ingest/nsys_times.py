"""Which times of an Nsight Systems export can be true, and which clock they are on."""

from __future__ import annotations

import numpy as np

from bubblescope.ingest.sqlite import Database
from bubblescope.ingest.times import CENTURY, EPOCH, LONGEST
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int


def plausible(start: Int, end: Int) -> Mask:
    """Which rows have a beginning and an end, in this order, within a century of zero."""
    inside = (start >= -CENTURY) & (end <= CENTURY)  # NULL is before all times
    inside[inside] = (end[inside] >= start[inside]) & (end[inside] - start[inside] <= LONGEST)
    return np.asarray(inside)


def base(database: Database, first: int) -> int:
    """What to add to times for ns since 1970; 0 where that is not recorded, or they are that.

    Times count from the beginning of the session, whose UTC time the export gives, unless they
    were normalised when it was made. first: one of the times.
    """
    (epoch,) = database.integers("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    if not len(epoch) or not 0 < epoch[0] <= CENTURY or abs(first) > EPOCH:
        return 0
    return int(epoch[0])
