"""Steps without any marker: the period of a sequence of operation names."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bubblescope.timeline.tables import Int

MATCH = 0.9
"""Share of operations that must repeat one period later."""
CANDIDATES = 32


def period(names: npt.NDArray[np.int32]) -> int | None:
    """Length, in operations, of the cycle that the sequence of name codes repeats, or None.

    A layer repeats within a step, so the period taken is the one that explains most: among those
    about as good as the best, the shortest. It must fit at least twice, and hold more than one
    name: a run of equal kernels has no period that means anything.
    """
    rows = len(names)
    if rows < 4:
        return None
    best: list[tuple[float, int]] = []
    for length in _candidates(names):
        if 2 * length > rows or (names[1:length] == names[: length - 1]).all():
            continue
        match = float(np.mean(names[length:] == names[:-length]))
        best.append((match, length))
    good = [(m, n) for m, n in best if m >= MATCH]
    if not good:
        return None
    top = max(m for m, _ in good)
    return min(n for m, n in good if m >= top - 0.002)


def _candidates(names: npt.NDArray[np.int32]) -> list[int]:
    """Distances between neighbours of the same name, the names that occur least often first."""
    order = np.argsort(names, kind="stable")
    counts = np.bincount(names)
    repeated = np.flatnonzero(counts >= 2)
    starts = np.cumsum(counts) - counts
    lengths: list[int] = []
    for name in repeated[np.argsort(counts[repeated], kind="stable")][:CANDIDATES].tolist():
        places = order[starts[name] : starts[name] + counts[name]]
        gaps = np.diff(places)
        values, how_often = np.unique(gaps, return_counts=True)
        lengths.append(int(values[np.argmax(how_often)]))
    return sorted(set(lengths))


def phase(length: int, gap_before: Int) -> int:
    """Which operation of the cycle begins a step: the one before which the device idles most.

    gap_before: ns of bubble before each operation, shape (operations,).
    """
    # The first operation has no bubble before it that could be seen, so means, not sums.
    gaps = gap_before[1:]
    places = np.arange(1, len(gap_before)) % length
    total = np.zeros(length, np.int64)
    np.add.at(total, places, gaps)
    return int(np.argmax(total // np.maximum(np.bincount(places, minlength=length), 1)))
