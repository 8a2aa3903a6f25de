"""Which row of its lane each interval is drawn in, so that none covers another."""

from __future__ import annotations

import numpy as np

from bubblescope.timeline.tables import Int


def rows(lane: Int, start: Int, end: Int) -> Int:
    """The first row of its lane, from 0, that is free when each interval begins.

    So operations that overlap lie beside each other, in as few rows as can be, and what nests on a
    host thread lies below what it is inside of. Rows may come in any order; of two that begin
    together the longer one comes first.
    """
    result = np.zeros(len(start), np.int64)
    order = np.lexsort((-end, start, lane))
    for number in np.unique(lane).tolist():
        low, high = np.searchsorted(lane[order], [number, number + 1])
        left = order[low:high]
        row = 0
        while len(left):
            chosen = _one_after_the_other(start[left], end[left])
            result[left[chosen]] = row
            left = left[~chosen]
            row += 1
    return result


def _one_after_the_other(start: Int, end: Int) -> np.ndarray:
    """Mask of the first interval, the first that begins at or after its end, and so on."""
    count = len(start)
    marked = np.zeros(count + 1, np.bool_)
    marked[0] = True
    following = np.arange(1, count + 1)
    np.maximum(following, np.searchsorted(start, end, "left"), out=following)
    following = np.append(following, count)
    # Jumps of 1, 2, 4, ... links: each turn doubles how far the chain is known.
    while not marked[count]:
        marked[following[np.flatnonzero(marked)]] = True
        following = following[following]
    return marked[:count]
