"""Operations that were ready and yet did not start: held by something that was not recorded."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose.bubbles import Gaps
from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import Part, Pieces
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

HELD_NS = 100_000
HELD_TIMES = 50
"""Longer than both, this many times the median, is no boundary and no latency: it is unknown."""


def mark(pieces: list[Pieces], gaps: list[Gaps], launches: Launches) -> None:
    """Make device gaps and launch latencies unknown that are out of all proportion.

    The pieces of all devices are changed in place; medians are taken over all of them. The
    latency of a graph launch is left alone: uploading a graph can take that long.
    """
    for part in (Part.DEVICE_GAP, Part.LAUNCH_LATENCY):
        chosen = [_rows(p, g, launches, part) for p, g in zip(pieces, gaps, strict=True)]
        lengths = [p.end[r] - p.start[r] for p, r in zip(pieces, chosen, strict=True)]
        everywhere = np.sort(np.concatenate(lengths))
        if not len(everywhere):
            continue
        low, high = everywhere[[(len(everywhere) - 1) // 2, len(everywhere) // 2]].tolist()
        for p, rows, length in zip(pieces, chosen, lengths, strict=True):
            # The median may lie between two whole numbers, but not so many times it.
            held = (length > HELD_NS) & (length > HELD_TIMES * (low + high) // 2)
            p.part[rows[held]] = Part.UNKNOWN
            p.call[rows[held]] = -1


def _rows(pieces: Pieces, gaps: Gaps, launches: Launches, part: Part) -> Int:
    is_part: Mask = pieces.part == part
    if part == Part.LAUNCH_LATENCY:
        is_part &= ~launches.by_graph[gaps.op[pieces.bubble]]
    return np.flatnonzero(is_part)
