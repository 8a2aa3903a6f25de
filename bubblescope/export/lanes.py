"""Slices that overlap, spread over lanes: viewers draw only slices that nest on one track."""

from __future__ import annotations

import numpy as np

from bubblescope.timeline.intervals import runs
from bubblescope.timeline.tables import Int


def apart(start: Int, end: Int) -> Int:
    """The lane of each interval, so that no two on one lane overlap; 0 as far as possible.

    Intervals come ordered by start. Shape (n,).
    """
    lane = np.zeros(len(start), np.int64)
    for first, stop in _clusters(start, end):
        free: list[int] = []  # when each lane is free again
        for row, (begin, finish) in enumerate(_pairs(start, end, first, stop), first):
            chosen = next((n for n, at in enumerate(free) if at <= begin), len(free))
            free[chosen : chosen + 1] = [finish]
            lane[row] = chosen
    return lane


def nested(start: Int, end: Int) -> Int:
    """The lane of each interval, so that any two on one lane nest or lie apart.

    Intervals come ordered by start, the longer of equal starts first. Shape (n,).
    """
    lane = np.zeros(len(start), np.int64)
    for first, stop in _clusters(start, end):
        if _laminar(start[first:stop], end[first:stop]):
            continue
        open_: list[list[int]] = []  # by lane, the ends of what is open on it, innermost last
        for row, (begin, finish) in enumerate(_pairs(start, end, first, stop), first):
            for stack in open_:
                while stack and stack[-1] <= begin:
                    stack.pop()
            fits = (n for n, stack in enumerate(open_) if not stack or finish <= stack[-1])
            chosen = next(fits, len(open_))
            if chosen == len(open_):
                open_.append([])
            open_[chosen].append(finish)
            lane[row] = chosen
    return lane


def _pairs(start: Int, end: Int, first: int, stop: int) -> list[tuple[int, int]]:
    return list(zip(start[first:stop].tolist(), end[first:stop].tolist(), strict=True))


def _clusters(start: Int, end: Int) -> list[tuple[int, int]]:
    """Bounds of the stretches of several rows in which something is going on all the time."""
    if len(start) < 2:
        return []
    reach = np.maximum.accumulate(end)
    joined = start[1:] < reach[:-1]
    first, length = runs(np.concatenate([[0], np.cumsum(~joined)]))
    several = length > 1
    return list(zip(first[several].tolist(), (first + length)[several].tolist(), strict=True))


def _laminar(start: Int, end: Int) -> bool:
    """Whether any two of the intervals nest or lie apart.

    As brackets do: each closes at the depth at which it opened.
    """
    opened = np.arange(len(start)) - np.searchsorted(np.sort(end), start, "right")
    # Of equal ends the one that opened last closes first.
    order = np.lexsort((-np.arange(len(end)), end))
    closed = np.empty(len(end), np.int64)
    closed[order] = np.searchsorted(start, end[order], "left") - np.arange(len(end)) - 1
    return bool((opened == closed).all())
