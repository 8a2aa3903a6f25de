"""Which times of any recording can be true. All in ns."""

from __future__ import annotations

import numpy as np

from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

HOUR = 3_600 * 10**9
LONGEST = 30 * 24 * HOUR
"""Nothing that is recorded lasts a month; sums of what does would not fit 64 bits."""
CENTURY = 100 * 365 * 24 * HOUR
EPOCH = 10**18
"""A file whose times are this large counts from 1970 itself (this is 2001)."""


def far(start: Int, end: Int, operation: Mask, host: Mask, usable: Mask) -> Mask:
    """Rows over an hour away from the stretch of time in which most rows lie.

    The clock of a device may be read wrongly for a while, which puts its records days away. A
    stretch of its own in which both host and device did something is left alone: that is work.

    Args:
        start: when each row begins, of any kind.
        end: when it ends.
        operation: which rows are device operations.
        host: which rows are what the host did.
        usable: which rows to look at; no other is far.
    """
    found = np.zeros(len(start), np.bool_)
    if not usable.any():
        return found
    first = np.min(start, where=usable, initial=CENTURY)
    last = np.max(end, where=usable, initial=-CENTURY)
    if int(last) - int(first) <= HOUR:
        return found
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(start[rows], kind="stable")]
    stretch = np.append(0, np.cumsum(np.diff(start[rows]) > HOUR))
    size = np.bincount(stretch)
    most = int(np.argmax(size))
    if 2 * size[most] <= len(rows):
        return found
    works = (np.bincount(stretch, operation[rows]) > 0) & (np.bincount(stretch, host[rows]) > 0)
    works[most] = True
    # An operation that goes on for an hour after all else began never ended when it says.
    begun = start[rows[stretch == most][-1]]
    endless = operation[rows] & (stretch == most) & (end[rows] > begun + HOUR)
    found[rows[~works[stretch] | endless]] = True
    return found
