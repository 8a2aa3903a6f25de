"""Steps without any marker: the period of a sequence of operation names."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

MATCH = 0.9
"""Share of operations that must repeat one period later."""
FLAWLESS = 3
"""So many cycles without a flaw, over half of the operations, are enough in place of that."""
CANDIDATES = 32


def period(names: npt.NDArray[np.int32], copies: Mask) -> int | None:
    """Length, in operations, of the cycle that the sequence of name codes repeats, or None.

    A layer repeats within a step, so the period taken is the one that explains most: among those
    about as good as the best, the shortest. It must fit at least twice, and hold more than one
    name: a run of equal kernels has no period that means anything.

    Where a part repeats nothing, a prefill before or among decode steps, a long stretch without a
    flaw is as good. It must be longer than what repeats all over, and since the layers of a single
    step repeat so too, it must hold copies between host and device: a step takes its input from
    the host, or gives its result to it. copies: mask of those operations.
    """
    rows = len(names)
    if rows < 4:
        return None
    best: list[tuple[float, int]] = []
    flawless: list[tuple[int, int]] = []
    for length in _candidates(names):
        if 2 * length > rows or (names[1:length] == names[: length - 1]).all():
            continue
        match = float(np.mean(names[length:] == names[:-length]))
        best.append((match, length))
        stretch = regular(names, length)
        covered = stretch.stop - stretch.start
        one = slice(stretch.start, stretch.start + length)
        if rows > covered >= max(FLAWLESS * length, rows // 2) and copies[one].any():
            flawless.append((covered, length))
    good = [(m, n) for m, n in best if m >= MATCH]
    top = max((m for m, _ in good), default=0.0)
    everywhere = min((n for m, n in good if m >= top - 0.002), default=None)
    longest = max((covered for covered, _ in flawless), default=0)
    local = min((n for covered, n in flawless if covered == longest), default=None)
    if everywhere is None or (local is not None and local > everywhere):
        return local
    return everywhere


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


def regular(names: npt.NDArray[np.int32], length: int) -> slice:
    """The longest stretch that repeats without a flaw; all of it where none holds two cycles."""
    same = np.concatenate([[False], names[length:] == names[:-length], [False]])
    edges = np.flatnonzero(same[1:] != same[:-1])
    first, stop = edges[::2], edges[1::2]
    longest = int(np.argmax(stop - first)) if len(first) else 0
    if not len(first) or stop[longest] - first[longest] < length:
        return slice(0, len(names))
    return slice(int(first[longest]), int(stop[longest]) + length)


def begins(names: npt.NDArray[np.int32], length: int, at: int) -> Int:
    """Where cycles begin, given that some begin at `at` and every `length` after it.

    Counting on from the first goes wrong after whatever does not repeat, a prefill among decode
    steps. So it is counted from the last operation before each beginning (or the one that
    begins) whose name occurs once a cycle, wherever such a one is.
    """
    rows = len(names)
    one = names[at : at + length]
    once = np.bincount(one, minlength=int(names.max()) + 1) == 1
    # By how far the operation comes before the beginning: 0 for the one that begins.
    before = (-np.arange(length)) % length
    usable = np.flatnonzero(once[one])
    if not len(usable):
        return np.arange(at, rows, length)
    anchor = usable[np.argmin(before[usable])]
    found = np.flatnonzero(names == one[anchor]) + before[anchor]
    if at < before[anchor] or names[at - before[anchor]] != one[anchor]:
        found = np.append(at, found)
    return np.asarray(found[found < rows], np.int64)


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
