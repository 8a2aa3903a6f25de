"""Which rows of a Kineto file have times that can be used, and on which clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bubblescope.ingest.kineto_events import CALL, MEMSET, MISSING, SYNC, Events
from bubblescope.ingest.times import CENTURY, EPOCH, HOUR, LONGEST, far
from bubblescope.timeline import Health


@dataclass(frozen=True, slots=True)
class Times:
    """Times in ns for the rows in the mask `good`, with `base_ns` added to the file's own."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    good: npt.NDArray[np.bool_]
    base_ns: int
    health: Health


def settle(events: Events, base_ns: int, rank: int, *, ours: bool = False) -> Times:
    """Drop and count the rows whose times cannot be true; add the file's base to the others.

    ours: the file is our own export, in which every time is what the recording had.
    """
    kind = events.columns["kind"]
    start = events.columns.pop("start")
    duration = events.columns.pop("duration")
    readable = (start != MISSING) & (duration != MISSING)
    sane = (np.abs(start) <= CENTURY) & (duration <= LONGEST)
    usual = start[readable & sane & (start != 0)]
    base_ns = base_ns if ours else _base(usual, base_ns)
    # Zero is a time like any other in a file that starts near it.
    late = len(usual) > 0 and usual.min() > HOUR
    zero = (start == 0) & ((duration == 0) | late) & (not ours)
    negative = duration < 0
    usable = readable & sane & ~zero & ~negative
    reasons = {
        "unreadable time": ~readable,
        "time out of range": readable & ~sane,
        "zero timestamp": readable & sane & zero,
        "negative duration": readable & sane & ~zero & negative,
    }
    if not ours:
        operation = kind <= MEMSET
        host = ~operation & (kind != SYNC)
        reasons["time far from all others"] = far(start, start + duration, operation, host, usable)
    bad = np.logical_or.reduce(list(reasons.values()))
    start += base_ns
    duration += start
    return Times(start, duration, ~bad, base_ns, _counted(reasons, kind, rank))


def _base(starts: npt.NDArray[np.int64], base_ns: int) -> int:
    if not 0 < base_ns <= CENTURY or not len(starts):
        return 0
    middle = np.partition(starts, len(starts) // 2)[len(starts) // 2]
    return 0 if middle > EPOCH else base_ns


def _counted(
    reasons: dict[str, npt.NDArray[np.bool_]], kind: npt.NDArray[Any], rank: int
) -> Health:
    tables = {
        "device operations": kind <= MEMSET,
        "host calls": kind == CALL,
        "ranges": kind > CALL,
    }
    rows: list[tuple[str, int, str]] = []
    for reason, dropped in reasons.items():
        counts = {table: int((dropped & of).sum()) for table, of in tables.items()}
        parts = [f"{count:,} {table}" for table, count in counts.items() if count]
        if parts:
            rows.append((reason, sum(counts.values()), f"{reason}, dropped: {', '.join(parts)}"))
    return health(rank, rows)


def health(rank: int, rows: Sequence[tuple[str, int, str]]) -> Health:
    """A Health table of (kind, count, note)."""
    kinds, counts, notes = zip(*rows, strict=True) if rows else ((), (), ())
    return Health.build(len(rows), rank=rank, kind=kinds, count=counts, note=notes)
