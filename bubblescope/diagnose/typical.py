"""One step to show: the whole step whose length is nearest to the median."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose.model import Part, Pieces, Segment, StepTable, median_ns


def find(steps: StepTable, pieces: Pieces) -> tuple[Segment, ...]:
    """The stretches of that step in order, times from its start in ns; nothing without steps."""
    counted = np.flatnonzero(steps.counted())
    if not len(counted):
        return ()
    lengths = steps.length_ns[counted]
    middle = median_ns(lengths) or 0
    step = int(counted[np.argmin(np.abs(lengths - middle))])
    begin, end = int(steps.start[step]), int(steps.end[step])
    rows = slice(*np.searchsorted(pieces.start, [begin, end]).tolist())
    segments: list[Segment] = []
    at = begin
    for start, stop, part in zip(
        pieces.start[rows].tolist(),
        pieces.end[rows].tolist(),
        pieces.part[rows].tolist(),
        strict=True,
    ):
        if start > at:
            segments.append(Segment("busy", at - begin, start - begin))
        segments.append(Segment(Part(part).label, start - begin, stop - begin))
        at = stop
    if end > at:
        segments.append(Segment("busy", at - begin, end - begin))
    return tuple(segments)
