"""CUPTI's activity records to the tables of a Timeline, a column at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from bubblescope.capture import frames as sites
from bubblescope.capture.cupti.demangle import demangle
from bubblescope.capture.cupti.subscriber import Row
from bubblescope.timeline import Coded, DeviceOps, Frames, HostCalls, Ranges
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.shapes import shape
from bubblescope.timeline.tables import Int

NONE = 2**32 - 1
"""CUPTI's id for "no such thing"."""

# CUpti_ActivityKind: these numbers never change.
MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL, MARKER, OVERHEAD = 1, 2, 4, 5, 10, 12, 17
MEMCPY2, CUDA_EVENT, SYNCHRONIZATION, GRAPH_TRACE = 22, 36, 38, 51

_COPY = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD"}
_COPY |= {9: "HtoH", 10: "PtoP"}
_MEMORY = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed"}
_SYNC = {1: "event", 2: "stream wait", 3: "stream", 4: "context"}
_OVERHEAD = {
    1: "driver compiler",
    1 << 16: "CUPTI buffer flush",
    2 << 16: "CUPTI instrumentation",
    3 << 16: "CUPTI resources",
    4 << 16: "module loading",
    5 << 16: "lazy function loading",
    6 << 16: "command buffer full",
    7 << 16: "CUPTI buffer request",
}
# The program's own: found by CUPTI, not made by it.
_NOT_PROFILER = {1, 4 << 16, 5 << 16, 6 << 16}
_BEGIN, _END = 2, 4


@dataclass(frozen=True, slots=True)
class Window:
    """What to make tables of: [begin, end) in ns, the process, and ids that only CUPTI names.

    shift: what brings CUPTI's clock to `time.time_ns()`'s. runtime, driver: names by call id.
    """

    begin: int
    end: int
    process: int
    runtime: dict[int, str]
    driver: dict[int, str]
    rank: int = 0
    shift: int = 0
    sites: Sequence[Row] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """Tables of a window. unfinished: operations without an end, which are left out."""

    device_ops: DeviceOps
    host_calls: HostCalls
    ranges: Ranges
    frames: Frames
    unfinished: int


def make(records: Sequence[Any], window: Window) -> Made:
    """The tables of the records that belong to a window."""
    kinds: dict[int, list[Any]] = defaultdict(list)
    for record in records:
        kinds[record.kind].append(record)
    calls, frames = _host_calls(kinds, window)
    ops, unfinished = _device_ops(kinds, window)
    return Made(ops, calls, _ranges(kinds, window), frames, unfinished)


def _column(records: list[Any], name: str) -> Int:
    return np.fromiter(map(attrgetter(name), records), np.int64, len(records))


def _id(records: list[Any], name: str) -> Int:
    """A column of ids, -1 where CUPTI has none."""
    values = _column(records, name)
    return np.where((values == NONE) | (values == 0xFFFFFFFFFFFFFFFF), -1, values)


def _graph_id(records: list[Any], name: str) -> Int:
    """Graph and node ids: CUPTI's 0 is "in no graph"."""
    values = _column(records, name)
    return np.where(values > 0, values, -1)


# -- device ----------------------------------------------------------------------------------


def _device_ops(kinds: dict[int, list[Any]], window: Window) -> tuple[DeviceOps, int]:
    named: list[tuple[str, list[Any], Callable[[list[Any]], Coded]]] = [
        ("kernel", kinds[KERNEL], _kernel_names),
        ("memcpy", kinds[MEMCPY] + kinds[MEMCPY2], _copy_names),
        ("memset", kinds[MEMSET], lambda r: Coded.constant("Memset (Device)", len(r))),
        ("graph", kinds[GRAPH_TRACE], _graph_names),
    ]
    parts = [_ops(kind, records, names, window) for kind, records, names in named if records]
    table = DeviceOps.concat(parts) if parts else DeviceOps.empty()
    done = (table.start > window.shift) & (table.end >= table.start)
    return table.take(done & (table.end > window.begin)), int((~done).sum())


def _ops(
    kind: str, records: list[Any], names: Callable[[list[Any]], Coded], window: Window
) -> DeviceOps:
    whole = kind == "graph"
    return DeviceOps.build(
        len(records),
        rank=window.rank,
        process=window.process,
        device=_column(records, "device_id"),
        stream=_id(records, "stream_id"),
        kind=kind,
        name=names(records),
        start=_column(records, "start") + window.shift,
        end=_column(records, "end") + window.shift,
        correlation=_column(records, "correlation_id"),
        graph=_graph_id(records, "graph_id"),
        node=-1 if whole else _graph_id(records, "graph_node_id"),
        bytes=_column(records, "bytes") if kind in ("memcpy", "memset") else -1,
        **(_shapes(records) if kind == "kernel" else {}),
    )


def _shapes(records: list[Any]) -> dict[str, Coded]:
    return {
        what: shape(*(_column(records, f"{what}_{axis}") for axis in "xyz"))
        for what in ("grid", "block")
    }


def _kernel_names(records: list[Any]) -> Coded:
    return Coded.of(map(attrgetter("name"), records)).map(demangle)


def _graph_names(records: list[Any]) -> Coded:
    return Coded.of(f"graph {record.graph_id}" for record in records)


def _copy_names(records: list[Any]) -> Coded:
    """As torch.profiler writes them: "Memcpy DtoH (Device -> Pinned)"."""
    return Coded.of(
        f"Memcpy {_COPY.get(r.copy_kind, 'unknown')} "
        f"({_MEMORY.get(r.src_kind, 'Unknown')} -> {_MEMORY.get(r.dst_kind, 'Unknown')})"
        for r in records
    )


# -- host ------------------------------------------------------------------------------------


def _host_calls(kinds: dict[int, list[Any]], window: Window) -> tuple[HostCalls, Frames]:
    parts = [
        _calls(kinds[kind], names, window)
        for kind, names in ((RUNTIME, window.runtime), (DRIVER, window.driver))
        if kinds[kind]
    ]
    table = HostCalls.concat(parts) if parts else HostCalls.empty()
    inside = (table.start >= window.begin) & (table.start < window.end)
    table = table.take(inside)
    columns, frames = _sites(table.correlation, window.sites)
    columns |= _syncs(table, kinds)
    made = {name: getattr(table, name) for name in _CALL_COLUMNS}
    return HostCalls.build(len(table), **made, **columns), frames


_CALL_COLUMNS = (
    "rank",
    "process",
    "thread",
    "name",
    "start",
    "end",
    "correlation",
    "status",
)


def _calls(records: list[Any], names: dict[int, str], window: Window) -> HostCalls:
    return HostCalls.build(
        len(records),
        rank=window.rank,
        process=window.process,
        thread=_column(records, "thread_id"),
        name=Coded.of(names.get(record.cbid, f"call {record.cbid}") for record in records),
        start=_column(records, "start") + window.shift,
        end=_column(records, "end") + window.shift,
        correlation=_column(records, "correlation_id"),
        status=_column(records, "return_value"),
    )


def _sites(correlation: Int, rows: Sequence[Row]) -> tuple[dict[str, Any], Frames]:
    """Each call's frame, by the correlation id that its callback carried."""
    frames, of_row = sites.table([(code, line) for _, code, line in rows])
    ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    at, known = _join(ids, correlation)
    frame = np.full(len(correlation), -1, np.int64)
    frame[known] = of_row[at[known]]
    return {"frame": frame}, frames


def _syncs(calls: HostCalls, kinds: dict[int, list[Any]]) -> dict[str, Any]:
    """What each synchronisation record says of its call; the event's record by (event, sync) id."""
    records = kinds[SYNCHRONIZATION]
    at, known = _join(_column(records, "correlation_id"), calls.correlation)
    kind = [_SYNC.get(record.type, "") for record in records]
    events = {
        (r.event_id, r.cuda_event_sync_id): (r.stream_id, r.correlation_id)
        for r in kinds[CUDA_EVENT]
    }
    of_event = np.array(
        [events.get((r.cuda_event_id, r.cuda_event_sync_id), (-1, -1)) for r in records], np.int64
    ).reshape(-1, 2)
    columns = {
        "stream": _id(records, "stream_id"),
        "event_stream": of_event[:, 0],
        "event_record": of_event[:, 1],
    }
    filled: dict[str, Any] = {name: np.full(len(calls), -1, np.int64) for name in columns}
    for name, values in columns.items():
        filled[name][known] = values[at[known]]
    words = np.full(len(calls), "", dtype="<U16")
    words[known] = np.array(kind or [""], "<U16")[at[known]]
    filled["sync"] = Coded.of(words.tolist())
    return filled


def _join(ids: Int, wanted: Int) -> tuple[Int, Mask]:
    """For each of `wanted`, a row of `ids` that equals it, and whether there is one."""
    if not len(ids):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    return order[at], ids[order[at]] == wanted


# -- ranges ----------------------------------------------------------------------------------


def _ranges(kinds: dict[int, list[Any]], window: Window) -> Ranges:
    rows = _markers(kinds[MARKER], window) + _overheads(kinds[OVERHEAD], window)
    inside = [r for r in rows if r[3] < window.end and r[4] > window.begin]
    return Ranges.build(
        len(inside),
        rank=window.rank,
        process=window.process,
        thread=[r[0] for r in inside],
        kind=[r[1] for r in inside],
        name=[r[2] for r in inside],
        start=[r[3] for r in inside],
        end=[r[4] for r in inside],
    )


_Range = tuple[int, str, str, int, int]


def _markers(records: list[Any], window: Window) -> list[_Range]:
    """NVTX ranges that were begun and ended; one still open when recording stopped ends there."""
    open_: dict[tuple[str, int], tuple[int, str, int]] = {}
    found: list[_Range] = []
    for record in sorted(records, key=attrgetter("timestamp")):
        key, at = (record.domain, record.id), record.timestamp + window.shift
        if record.flags_ & _BEGIN:
            open_[key] = (record.object_id.pt.thread_id, record.name, at)
        elif record.flags_ & _END and key in open_:
            thread, name, began = open_.pop(key)
            found.append((thread, "annotation", name, began, at))
    return found


def _overheads(records: list[Any], window: Window) -> list[_Range]:
    """The profiler's own work, matched by time as in other recordings."""
    return [
        (-1, "overhead", _OVERHEAD.get(r.overhead_kind, "CUPTI"), r.start + s, r.end + s)
        for s in (window.shift,)
        for r in records
        if r.overhead_kind not in _NOT_PROFILER
    ]
