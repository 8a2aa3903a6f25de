"""Whom a launching thread may have waited for: reads on other threads while it did."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose.model import Bubbles, Part, Pieces
from bubblescope.diagnose.reads import Reads
from bubblescope.diagnose.sites import Place
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads


def possible_owners(
    pieces: list[Pieces],
    bubbles: list[Bubbles],
    reads: Reads,
    threads: Threads,
    places: list[Place],
    shift: int,
) -> tuple[Place, ...]:
    """Places that read on another thread of the process during a host wait.

    They are possible owners, to be named and not charged: the recording does not say which thread
    the launching one waited for.
    """
    found = np.zeros(len(reads.call), np.bool_)
    for p, b in zip(pieces, bubbles, strict=True):
        rows = np.flatnonzero(p.part == Part.HOST_WAIT)
        if not len(rows):
            continue
        waiting = threads.of_call[b.launch[p.bubble[rows]]]
        start, end = p.start[rows] + shift, p.end[rows] + shift
        for thread in np.unique(waiting).tolist():
            mine = waiting == thread
            for other in np.unique(reads.thread).tolist():
                if other != thread and threads.process(other) == threads.process(thread):
                    _mark(found, reads, other, start[mine], end[mine])
    return tuple(place for place in places if found[place.rows].any())


def _mark(found: np.ndarray, reads: Reads, thread: int, start: Int, end: Int) -> None:
    """Mark the reads of `thread` that overlap any of the intervals; neither overlap themselves."""
    rows = np.arange(*np.searchsorted(reads.thread, [thread, thread + 1]).tolist())
    order = np.argsort(start)
    start, end = start[order], end[order]
    at = np.searchsorted(end, reads.begin[rows], "right")  # the first wait that ends later
    inside = at < len(start)
    found[rows[inside]] |= start[at[inside]] < reads.end[rows[inside]]
