"""Nsight Systems: the SQLite files that `nsys export` makes, of any version, and packed ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from bubblescope.ingest import nsys_calls, nsys_device, nsys_meta, nsys_places, nsys_ranges
from bubblescope.ingest import nsys_refuse as refuse
from bubblescope.ingest.format import Format, Progress
from bubblescope.ingest.kineto_times import health
from bubblescope.ingest.nsys_calls import Calls
from bubblescope.ingest.nsys_device import Operations
from bubblescope.ingest.nsys_strings import Strings
from bubblescope.ingest.nsys_times import base
from bubblescope.ingest.source import Source
from bubblescope.ingest.sqlite import MAGIC, Database, opened
from bubblescope.ingest.times import far
from bubblescope.timeline import DeviceOps, HostCalls, Ranges, Timeline
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

Rows = TypeVar("Rows", DeviceOps, HostCalls, Ranges)


def _matches(head: bytes) -> bool:
    return head.startswith(MAGIC)


def _read(source: Source, progress: Progress) -> Timeline:
    progress("read", 0.0)
    with opened(source) as database:
        timeline = _timeline(source, database, progress)
    progress("build", 1.0)
    return timeline


def _timeline(source: Source, database: Database, progress: Progress) -> Timeline:
    error = refuse.stranger(source.path, database)
    if error is not None:
        raise error
    strings = Strings(database)
    progress("read", 0.1)
    calls = nsys_calls.read(database, strings)
    progress("read", 0.4)
    operations = nsys_device.read(database, strings).owned(calls.part, calls.table.correlation)
    progress("read", 0.8)
    untrue = ~operations.good, ~calls.good
    operations, calls = _near(operations, calls)
    good = operations.good
    if not good.any():
        raise refuse.no_device_ops(source.path, database, calls)
    places = nsys_places.find(
        database,
        np.concatenate([calls.part, operations.part, nsys_ranges.parts(database)]),
        operations.part[good],
        operations.table.device[good],
    )
    ops, host_calls = operations.placed(places), calls.placed(places)
    last = int(max(ops.end.max(), host_calls.end.max(initial=ops.end[0])))
    ranges, bad_ranges = nsys_ranges.read(database, strings, places, last)
    progress("build", 0.0)
    base_ns = base(database, int(ops.start[0]))
    notes = _dropped("time out of range", *untrue, bad_ranges)
    notes += _dropped("time far from all others", ~good & ~untrue[0], ~calls.good & ~untrue[1], 0)
    return Timeline.of(
        nsys_meta.meta(database, strings, places, ops, source.path.name, base_ns),
        device_ops=_on_clock(_settled(ops, ops.correlation), base_ns),
        host_calls=_on_clock(_settled(host_calls, host_calls.correlation), base_ns),
        ranges=_on_clock(_settled(ranges), base_ns),
        frames=calls.frames,
        health=health(0, notes + nsys_meta.notes(database, places, ops)),
    )


def _near(operations: Operations, calls: Calls) -> tuple[Operations, Calls]:
    """Without the rows whose times lie far from most others."""
    tables = operations.table, calls.table
    operation = np.repeat([True, False], [len(operations.table), len(calls.table)])
    lost = far(
        np.concatenate([table.start for table in tables]),
        np.concatenate([table.end for table in tables]),
        operation,
        ~operation,
        np.concatenate([operations.good, calls.good]),
    )
    return (
        replace(operations, good=operations.good & ~lost[operation]),
        replace(calls, good=calls.good & ~lost[~operation]),
    )


def _dropped(reason: str, operations: Mask, calls: Mask, ranges: int) -> list[tuple[str, int, str]]:
    """Notes of the rows that are left out."""
    dropped = {
        "device operations": int(operations.sum()),
        "host calls": int(calls.sum()),
        "ranges": ranges,
    }
    return [
        (reason, count, f"{reason}, dropped: {count:,} {what}")
        for what, count in dropped.items()
        if count
    ]


def _settled(table: Rows, correlation: Int | None = None) -> Rows:
    """The rows in an order that is not the file's, since newer exports leave that to chance."""
    values = np.array(table.name.values, np.object_)
    place = np.empty(len(values), np.int64)
    place[np.argsort(values, kind="stable")] = np.arange(len(values))
    names: Int = place[table.name.codes]
    return table.take(np.lexsort([names] if correlation is None else [names, correlation]))


def _on_clock(table: Rows, base_ns: int) -> Rows:
    return replace(table, start=table.start + base_ns, end=table.end + base_ns)


FORMAT = Format("Nsight Systems SQLite export", _matches, _read)
