"""Where in the program a read was called: its source line, and the ops around it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.model import Site
from bubblescope.diagnose.names import merged
from bubblescope.diagnose.reads import Reads
from bubblescope.timeline import Coded, Timeline
from bubblescope.timeline.intervals import IntervalIndex
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads

_FRAMEWORK = re.compile(r"(^|[/\\])torch[/\\]|^<|(^|[/\\])threading\.py$")


@dataclass(frozen=True, slots=True)
class Place:
    """One place that reads: rows of the reads table, and what is known of where it is."""

    name: str
    site: Site | None
    within: tuple[str, ...]
    under: str
    rows: Int


def places(timeline: Timeline, reads: Reads, threads: Threads) -> list[Place]:
    """The reads by place: the same call on the same line, or under the same ops."""
    frame, chain = _surroundings(timeline, reads, threads)
    names = timeline.host_calls.name.take(reads.call)
    # A known line says where; without one the ops and annotations around must.
    ranges = merged(timeline.ranges)
    codes = np.where(chain >= 0, ranges.codes[chain], -1) if chain.size else chain
    around = np.where((frame >= 0)[:, None], -1, codes)
    keys = np.column_stack([names.codes, reads.polling, frame, around])
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    found = [
        Place(
            names[row] + (" (polling)" if reads.polling[row] else ""),
            _site(timeline, int(frame[row])),
            *_names(ranges, timeline.ranges.kind, chain[row]),
            np.flatnonzero(group == number),
        )
        for number, row in enumerate(first.tolist())
    ]
    return _with_lead_in(found, reads)


def _names(ranges: Coded, kind: Coded, inside_out: Int) -> tuple[tuple[str, ...], str]:
    """The names around a read, outermost first, and the one of them to call it by.

    That is the outermost op within the innermost annotation: what the program itself called.
    """
    rows = inside_out[inside_out >= 0][::-1].tolist()
    names = tuple(ranges[row] for row in rows)
    annotation = [kind[row] == "annotation" for row in rows]
    if not any(annotation):
        return names, names[0] if names else ""
    innermost = len(rows) - 1 - annotation[::-1].index(True)
    return names, names[min(innermost + 1, len(rows) - 1)]


def _with_lead_in(found: list[Place], reads: Reads) -> list[Place]:
    """Join reads from before the first range was recorded to their place, where it is certain.

    A range that was open when the recording began is not in it, so a read inside such a range
    seems to have nothing around it. It belongs to the only place of its name, if there is one.
    """
    result = list(found)
    for bare in found:
        if bare.site is not None or bare.within:
            continue
        others = [p for p in found if p.name == bare.name and p is not bare]
        if len(others) != 1:
            continue
        (other,) = others
        threads = np.unique(reads.thread[np.append(bare.rows, other.rows)])
        if len(threads) == 1 and reads.begin[bare.rows].max() < reads.begin[other.rows].min():
            result.remove(bare)
            result[result.index(other)] = Place(
                other.name,
                other.site,
                other.within,
                other.under,
                np.sort(np.append(bare.rows, other.rows)),
            )
    return result


def _site(timeline: Timeline, frame: int) -> Site | None:
    if frame < 0:
        return None
    frames = timeline.frames
    return Site(frames.file[frame], int(frames.line[frame]), frames.function[frame])


def _surroundings(timeline: Timeline, reads: Reads, threads: Threads) -> tuple[Int, Int]:
    """The user's innermost frame at each read, and the ranges around it from the inside out.

    Shapes (reads,) and (reads, depth); -1 where there is none. Frames are rows of `frames`, ranges
    are rows of `ranges`, annotations and ops only.
    """
    calls, ranges = timeline.host_calls, timeline.ranges
    user = ~timeline.frames.file.where(lambda file: bool(_FRAMEWORK.search(file)))
    named = ranges.kind.where(lambda kind: kind in ("annotation", "op"))
    overhead = ranges.kind.where(lambda kind: kind == "overhead")
    frame = calls.frame[reads.call].copy()
    fallback = np.full(len(frame), -1, np.int64)
    levels: list[Int] = []
    for thread in np.unique(reads.thread).tolist():
        mine = np.flatnonzero(reads.thread == thread)
        rows = threads.ranges(thread)
        at = np.flatnonzero(~overhead[rows]) + rows.start
        index = IntervalIndex(ranges.start[at], ranges.end[at])
        time = reads.begin[mine]
        inner, level = index.innermost(time), 0
        while (inner >= 0).any():
            some = inner >= 0
            row, read = at[inner[some]], mine[some]
            if level == len(levels):
                levels.append(np.full(len(frame), -1, np.int64))
            levels[level][read] = np.where(named[row], row, -1)
            found = ranges.frame[row]
            is_user = (found >= 0) & user[found] if len(user) else np.zeros(len(row), np.bool_)
            empty = frame[read] < 0
            frame[read] = np.where(empty & is_user, found, frame[read])
            fallback[read] = np.where(fallback[read] < 0, found, fallback[read])
            inner, level = index.enclosing(inner, time), level + 1
    frame = np.where(frame >= 0, frame, fallback)
    depth = np.stack(levels, 1) if levels else np.zeros((len(frame), 0), np.int64)
    return frame, depth
