"""Interval arithmetic on int64 nanoseconds, without loops over intervals."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bubblescope.timeline.tables import Int

Mask = npt.NDArray[np.bool_]


class IntervalIndex:
    """Answers "which interval is innermost at time t" for many t at once.

    Innermost is the covering interval that began last (of two that began together, the one that
    ends first). Intervals [start, end) may nest, touch, cross or be empty; they must come ordered
    by start, the longer of equal starts first, as a Timeline's host rows do.
    """

    def __init__(self, start: Int, end: Int) -> None:
        self.start, self.end = start, end
        rows = len(start)
        # Calls on one thread rarely nest. Where none do, the last that began is the only candidate.
        self._flat = bool(rows == 0 or (start[1:] >= end[:-1]).all())
        self._tree = np.zeros(0, np.int64)
        if self._flat:
            return
        # A tree of the latest end below each node: the last interval before a position that ends
        # after t is found by one climb and one descent. The leaf after the last is a sentinel.
        self._leaves = 1 << int(rows).bit_length()
        tree = np.full(2 * self._leaves, np.iinfo(np.int64).min)
        tree[self._leaves : self._leaves + rows] = end
        level = self._leaves
        while level > 1:
            level //= 2
            children = tree[2 * level : 4 * level]
            tree[level : 2 * level] = np.maximum(children[::2], children[1::2])
        self._tree = tree

    def innermost(self, at: Int) -> Int:
        """Index of the innermost interval at each time of `at`, -1 where none covers it."""
        return self._last_covering(np.searchsorted(self.start, at, "right"), at)

    def enclosing(self, inner: Int, at: Int) -> Int:
        """Index of the interval next outside `inner` that also covers `at`; -1 outside all."""
        return self._last_covering(np.maximum(inner, 0), at)

    def _last_covering(self, before: Int, at: Int) -> Int:
        """The last interval with index < `before` that ends after `at`."""
        if not len(self.start):
            return np.full(len(at), -1, np.int64)
        if self._flat:
            last = before - 1
            return np.where((last >= 0) & (self.end[last] > at), last, -1)
        tree = self._tree
        found = np.full(len(at), -1, np.int64)
        queries = np.arange(len(at))
        node, time = before + self._leaves, at
        while len(queries):  # climb: one turn a level of the tree
            hit = (node & 1).astype(bool)
            hit[hit] = tree[node[hit] - 1] > time[hit]
            found[queries[hit]] = node[hit] - 1
            climbing = ~hit & (node > 1)
            node, time, queries = node[climbing] >> 1, time[climbing], queries[climbing]
        inside = np.flatnonzero(found >= 0)
        node, time = found[inside], at[inside]
        level = self._leaves
        deep = node < level
        while deep.any():  # descend: one turn a level of the tree
            right = 2 * node[deep] + 1
            node[deep] = np.where(tree[right] > time[deep], right, right - 1)
            deep = node < level
        found[inside] = node - level
        return found


def covered_before(start: Int, end: Int, at: Int) -> Int:
    """Sum of the parts of all intervals that lie before each time of `at`, in ns.

    Sums may pass 2^63 on the way: int64 wraps, and the result, which fits, is exact all the same.
    """
    begins, ends = in_order(start), in_order(end)
    begun = np.searchsorted(begins, at, "left")
    ended = np.searchsorted(ends, at, "left")
    zero = np.zeros(1, np.int64)
    begin_sums = np.concatenate([zero, np.cumsum(begins)])
    end_sums = np.concatenate([zero, np.cumsum(ends)])
    result: Int = begun * at - begin_sums[begun] - (ended * at - end_sums[ended])
    return result


def union(start: Int, end: Int) -> tuple[Int, Int]:
    """The stretches that any of the intervals covers, in order; they come ordered by start."""
    if not len(start):
        return start, end
    reach = np.maximum.accumulate(end)
    new = np.append(True, start[1:] > reach[:-1])
    return start[new], reach[np.append(np.flatnonzero(new)[1:] - 1, len(start) - 1)]


def in_order(values: Int) -> Int:
    """Sorted values; the array itself where it is sorted already, as most are."""
    return values if (values[1:] >= values[:-1]).all() else np.sort(values)


def runs(*keys: npt.NDArray[np.generic]) -> tuple[Int, Int]:
    """First row and length of each run of rows in which no key changes."""
    rows = len(keys[0])
    if not rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    change = np.zeros(rows, np.bool_)
    change[0] = True
    for key in keys:
        change[1:] |= key[1:] != key[:-1]
    first = np.flatnonzero(change)
    return first, np.diff(np.append(first, rows))
