"""Recordings of several ranks as one Timeline."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np

from bubblescope.ingest import folder
from bubblescope.ingest.source import refusal
from bubblescope.paths import is_folder
from bubblescope.timeline import Frames, Health, Meta, Timeline
from bubblescope.timeline.tables import Int

_EPOCH = 10**18
"""Times this large count from 1970 (this is 2001): all such files are on one clock."""
_WORDS = ("rank", "worker", "tp", "gpu", "device", "proc", "process", "dp", "ep", "pp", "node", "r")
"""What stands before a rank in the names of files, the surest first."""
_LISTED = 5


def load(paths: Sequence[Path], one: folder.Read, progress: Callable[[float], None]) -> Timeline:
    """One Timeline of files, and of all recordings in folders.

    Args:
        paths: Files and folders, one at least.
        one: Reads a file.
        progress: Called with the share of all that is done.

    Raises:
        BubblescopeError: a file that was named, or no file of a folder, can be read; or a file is
            named twice.
    """
    _refuse_twice(paths)
    found: list[tuple[Path, Timeline]] = []
    refused: list[str] = []

    def share_of(number: int) -> Callable[[float], None]:
        return lambda share: progress((number + share) / len(paths))

    for number, path in enumerate(paths):
        if is_folder(path):
            timelines, others = folder.read(path, one, share_of(number))
            found += timelines
            refused += others
        else:
            found.append((path, one(path, share_of(number))))
    source = paths[0].name or str(paths[0]) if len(paths) == 1 else ""
    return join(found, source, refused)


def _refuse_twice(paths: Sequence[Path]) -> None:
    """Raise where a file would count twice."""
    seen: set[Path] = set()
    folders = {Path(os.path.realpath(path)) for path in paths if is_folder(path)}
    for path in paths:
        real = Path(os.path.realpath(path))  # which no circle of links stops
        if real in seen or real.parent in folders:
            raise refusal(path, "named twice, itself or its folder", "name it once")
        seen.add(real)


def join(
    found: Sequence[tuple[Path, Timeline]], source: str = "", refused: Sequence[str] = ()
) -> Timeline:
    """The recordings as one, each rank under a number of its own.

    Times stay as they are where every recording counts from 1970. Where one does not, all are
    laid together by their first device operations.

    Args:
        found: Each file and what is in it.
        source: What to call them together; their names where "".
        refused: What is said of files that could not be read.
    """
    notes: list[tuple[str, int, str]] = []
    if refused:
        noun = "1 file is" if len(refused) == 1 else f"{len(refused):,} files are"
        more = "; ..." if len(refused) > _LISTED else ""
        listed = "; ".join(refused[:_LISTED])
        notes.append(("not read", len(refused), f"{noun} left out: {listed}{more}"))
    timelines = [timeline for _, timeline in found]
    if len(timelines) == 1:
        return _with(timelines[0], timelines[0].meta, notes)
    numbers, why = _ranks(found)
    if why:
        notes.append(("ranks not stated", len(found), why))
    timelines = [_ranked(t, n) for t, n in zip(timelines, numbers, strict=True)]
    apart = sum(int(t.device_ops.start.min()) < _EPOCH for t in timelines)
    if apart:
        timelines = [_from_zero(t) for t in timelines]
        note = (
            f"{apart:,} of {len(found):,} files do not say when they were recorded: all are laid "
            "together by their first device operations"
        )
        notes.append(("no common clock", apart, note))
    source = source or ", ".join(path.name for path, _ in found)
    return _with(_joined(timelines), _meta(timelines, source), notes)


def _ranks(found: Sequence[tuple[Path, Timeline]]) -> tuple[list[dict[int, int]], str]:
    """The new number of each rank of each file, and why it is not the recorded one, if it is not.

    The recorded ranks where these differ; else what the names of the files say; else their order.
    """
    have = [np.unique(timeline.device_ops.rank).tolist() for _, timeline in found]
    every = list(chain.from_iterable(have))
    if len(set(every)) == len(every):
        return [{rank: rank for rank in ranks} for ranks in have], ""
    named = _named([path.name for path, _ in found])
    if named and all(len(ranks) == 1 for ranks in have):
        return [{ranks[0]: name} for ranks, name in zip(have, named, strict=True)], ""
    first = np.cumsum([0, *map(len, have)]).tolist()
    numbers = [
        {rank: begin + place for place, rank in enumerate(ranks)}
        for begin, ranks in zip(first, have, strict=False)
    ]
    why = (
        "neither what the files state nor their names tell the ranks apart: numbered in the order "
        "of the files"
    )
    return numbers, why


def _named(names: Sequence[str]) -> list[int]:
    """The rank in the name of each file; nothing where the names do not tell them apart."""
    for word in _WORDS:
        pattern = re.compile(rf"(?:^|[^a-z]){word}[-_ .=]?([0-9]{{1,6}})(?![0-9])", re.IGNORECASE)
        numbers = [int(m[1]) for m in map(pattern.search, names) if m]
        if len(numbers) == len(names) == len(set(numbers)):
            return numbers
    return []


def _ranked(timeline: Timeline, numbers: dict[int, int]) -> Timeline:
    """The Timeline with its ranks numbered anew."""
    if all(old == new for old, new in numbers.items()):
        return timeline
    default = next(iter(numbers.values()))
    numbers = {**numbers, -1: -1}  # what concerns no one rank

    def new(column: Int) -> Int:
        ranks, codes = np.unique(column, return_inverse=True)
        table = np.array([numbers.get(r, default) for r in ranks.tolist()], np.int64)
        return table[codes.reshape(-1)] if len(table) else column

    meta = msgspec.structs.replace(
        timeline.meta,
        devices=tuple(
            msgspec.structs.replace(d, rank=numbers.get(d.rank, default))
            for d in timeline.meta.devices
        ),
        threads=tuple(
            msgspec.structs.replace(t, rank=numbers.get(t.rank, default))
            for t in timeline.meta.threads
        ),
    )
    return replace(
        timeline,
        meta=meta,
        device_ops=replace(timeline.device_ops, rank=new(timeline.device_ops.rank)),
        host_calls=replace(timeline.host_calls, rank=new(timeline.host_calls.rank)),
        ranges=replace(timeline.ranges, rank=new(timeline.ranges.rank)),
        steps=replace(timeline.steps, rank=new(timeline.steps.rank)),
        health=replace(timeline.health, rank=new(timeline.health.rank)),
    )


def _from_zero(timeline: Timeline) -> Timeline:
    """The Timeline with its first device operation at 0."""
    zero = int(timeline.device_ops.start.min())
    ops, calls = timeline.device_ops, timeline.host_calls
    ranges, steps = timeline.ranges, timeline.steps
    return replace(
        timeline,
        meta=msgspec.structs.replace(timeline.meta, base_ns=0),
        device_ops=replace(ops, start=ops.start - zero, end=ops.end - zero),
        host_calls=replace(calls, start=calls.start - zero, end=calls.end - zero),
        ranges=replace(ranges, start=ranges.start - zero, end=ranges.end - zero),
        steps=replace(steps, start=steps.start - zero, end=steps.end - zero),
    )


def _joined(timelines: Sequence[Timeline]) -> Timeline:
    """All rows, one recording's after the other's; the meta is the first one's."""
    frames, of_file = _sites([t.frames for t in timelines])
    sited = [
        replace(
            t,
            host_calls=replace(t.host_calls, frame=rows[t.host_calls.frame]),
            ranges=replace(t.ranges, frame=rows[t.ranges.frame]),
        )
        for t, rows in zip(timelines, of_file, strict=True)
    ]
    tables = [t.tables() for t in sited]
    made = {
        name: type(table).concat([t[name] for t in tables]) for name, table in tables[0].items()
    }
    return Timeline.of(timelines[0].meta, **made | {"frames": frames})


def _sites(each: Sequence[Frames]) -> tuple[Frames, list[Int]]:
    """Every call site once, so that ranks share theirs, and where each file's rows are in it.

    The last of a file's numbers is -1, for calls without a site, whose row is -1.
    """
    frames = Frames.concat(each)
    keys = np.stack([frames.file.codes, frames.line, frames.function.codes], axis=1)
    _, first, site = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(first), np.int64)
    place[order] = np.arange(len(first))
    ends = np.cumsum([len(f) for f in each])[:-1]
    rows = np.split(place[site.reshape(-1)], ends)
    return frames.take(first[order]), [np.append(r, -1) for r in rows]


def _meta(timelines: Sequence[Timeline], source: str) -> Meta:
    """What holds for all; what only some state is the first's that does."""
    metas = [timeline.meta for timeline in timelines]
    last = max(int(timeline.device_ops.rank.max()) for timeline in timelines)

    def common(values: Sequence[str], otherwise: str) -> str:
        return values[0] if len(set(values)) == 1 else otherwise

    versions: dict[str, str] = {}
    about: dict[str, str] = {}
    for m in reversed(metas):
        versions |= m.versions
        about |= m.about
    steps = {m.unprofiled_step_ns for m in metas}
    return Meta(
        source=source,
        format=common([m.format for m in metas], ", ".join(sorted({m.format for m in metas}))),
        capture=common([m.capture for m in metas], ", ".join(sorted({m.capture for m in metas}))),
        level=common([m.level for m in metas], ""),
        base_ns=metas[0].base_ns if len({m.base_ns for m in metas}) == 1 else 0,
        devices=tuple(chain.from_iterable(m.devices for m in metas)),
        threads=tuple(chain.from_iterable(m.threads for m in metas)),
        versions=versions,
        world_size=max(*(m.world_size for m in metas), len(metas), last + 1),
        unprofiled_step_ns=steps.pop() if len(steps) == 1 else None,
        about=about,
    )


def _with(timeline: Timeline, meta: Meta, notes: Sequence[tuple[str, int, str]]) -> Timeline:
    """The Timeline under this meta, with what is to be said of all files (rank -1)."""
    if not notes:
        return replace(timeline, meta=meta)
    kinds, counts, texts = zip(*notes, strict=True)
    more = Health.build(len(notes), rank=-1, kind=kinds, count=counts, note=texts)
    return replace(timeline, meta=meta, health=Health.concat([timeline.health, more]))
