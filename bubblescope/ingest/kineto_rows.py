"""Kineto columns to the tables of a Timeline."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from bubblescope.ingest.codes import Codes, coded, integers
from bubblescope.ingest.kineto_events import (
    ANNOTATION,
    CALL,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    OP,
    OS,
    OVERHEAD,
    PYTHON,
    STEP,
    SYNC,
    Events,
)
from bubblescope.ingest.kineto_own import call_columns
from bubblescope.ingest.kineto_stacks import FRAME, Sites, sites_of
from bubblescope.ingest.kineto_times import Times
from bubblescope.timeline import Coded, DeviceOps, Frames, HostCalls, Ranges, Steps, in_order

_DEVICE_KINDS = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset", GRAPH: "graph"}
_RANGE_KINDS = {
    ANNOTATION: "annotation",
    OP: "op",
    PYTHON: "python",
    OVERHEAD: "overhead",
    OS: "os",
}
_SYNC_KINDS = {
    "Stream Sync": "stream",
    "Event Sync": "event",
    "Context Sync": "context",
    "Stream Wait Event": "stream wait",
}
# CUPTI's "none" for an id, where a tool wrote it without its sign.
_UNSIGNED_NONE = 2**32 - 1
_STEP = re.compile(r"ProfilerStep#([0-9]{1,18})")
_SIZES = r"\[\s*([1-9][0-9]{0,9}\s*,\s*[1-9][0-9]{0,4}\s*,\s*[1-9][0-9]{0,4})\s*\]"
_SHAPE = re.compile(_SIZES + _SIZES)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def host_calls(events: Events, times: Times, rank: int, sites: Sites) -> tuple[HostCalls, int]:
    """CUDA and HIP calls, and the number of sync rows for which there is no call.

    Places in the source go into `sites`.
    """
    columns = events.columns
    is_call = columns["kind"] == CALL
    rows = np.flatnonzero(is_call & times.good)
    correlation = events.calls["correlation"][times.good[is_call]]
    sync, lost = _sync_columns(events, correlation)
    sync = call_columns(events, times.good[is_call], sync)
    table = HostCalls.build(
        rank=rank,
        process=columns["pid"][rows],
        thread=columns["tid"][rows],
        name=coded(columns["name"][rows], events.names),
        start=times.start[rows],
        end=times.end[rows],
        correlation=correlation,
        frame=_stack_frames(events, rows, sites),
        **sync,
    )
    return in_order(table), lost


def _sync_columns(events: Events, correlation: Ints) -> tuple[dict[str, Any], int]:
    """What the sync rows say, brought to their calls by correlation id.

    A sync row names no process: an id that several calls carry joins nothing.
    """
    syncs = events.syncs
    ids, first, calls = np.unique(correlation, return_index=True, return_counts=True)
    at, found = _find(ids, syncs["correlation"])
    found[found] = calls[at[found]] == 1
    # Written backwards, so that the first of several rows of one call stays.
    source = np.flatnonzero(found)[::-1]
    target = first[at[source]]

    def column(name: str) -> Ints:
        values = np.full(len(correlation), -1, np.int64)
        ids = syncs[name]
        values[target] = np.where(ids == _UNSIGNED_NONE, -1, ids)[source]
        return values

    names = ["", *(_SYNC_KINDS.get(k, "") for k in events.sync_kinds)]
    kind = np.zeros(len(correlation), np.int64)
    kind[target] = syncs["kind"][source] + 1
    return {
        "sync": Coded(kind.astype(np.int32), tuple(names)).map(str),
        "stream": column("stream"),
        "event_stream": column("wait_stream"),
        "event_record": column("wait_record"),
    }, int((~found).sum())


def _find(ids: Ints, wanted: Ints) -> tuple[Ints, Mask]:
    """Where each of `wanted` stands in the sorted `ids`, and whether it does; -1 never does."""
    at = np.searchsorted(ids, wanted)
    found = (wanted >= 0) & (at < len(ids))
    found[found] = ids[at[found]] == wanted[found]
    return at, found


def device_ops(events: Events, times: Times, rank: int, calls: HostCalls) -> DeviceOps:
    """Kernels, copies and sets; never the annotation or sync rows on a device's track."""
    columns = events.columns
    is_op = columns["kind"] <= MEMSET
    good = times.good[is_op]
    rows = np.flatnonzero(is_op & times.good)
    # Popped one by one, so that only one column at a time is there twice.
    ops = {name: events.ops.pop(name)[good] for name in list(events.ops)}
    pid, tid = columns["pid"][rows], columns["tid"][rows]
    table = DeviceOps.build(
        rank=rank,
        process=_owner(ops["correlation"], calls),
        device=np.where(ops["device"] < 0, pid, ops["device"]),
        stream=np.where(ops["stream"] < 0, tid, ops["stream"]),
        kind=_kinds(columns["kind"][rows], _DEVICE_KINDS),
        name=coded(columns["name"][rows], events.names),
        start=times.start[rows],
        end=times.end[rows],
        correlation=ops["correlation"],
        graph=ops["graph"],
        node=ops["node"],
        bytes=ops["bytes"],
        **_shapes(ops["shape"], events.shapes),
        **_collectives(events, good),
    )
    del ops, rows, pid, tid  # as much memory again as the table
    return in_order(table)


def _shapes(code: Ints, texts: list[str]) -> dict[str, Any]:
    """Grid and block of each kernel; "" where the file does not say."""
    column = Coded(code.astype(np.int32), tuple(texts))
    found = {text: _SHAPE.fullmatch(text) for text in texts}

    def of(which: int) -> Coded:
        return column.map(lambda text: "".join(m[which].split()) if (m := found[text]) else "")

    return {"grid": of(1), "block": of(2)}


def _collectives(events: Events, good: Mask) -> dict[str, Any]:
    """The columns that name collectives; nothing where no operation is called one."""
    comms = events.comms
    if not comms:
        return {}
    code = np.zeros(len(good), np.int64)
    code[comms["row"]] = comms["code"] + 1
    sequence = np.full(len(good), -1, np.int64)
    sequence[comms["row"]] = comms["sequence"]
    names, groups = zip(("", ""), *events.collectives, strict=True)
    column = Coded(code[good].astype(np.int32), tuple(map(str, range(len(names)))))
    return {
        "collective": column.map(lambda row: str(names[int(row)])),
        "group": column.map(lambda row: str(groups[int(row)])),
        "sequence": sequence[good],
    }


def _owner(correlation: Ints, calls: HostCalls) -> Ints:
    """The process that launched each operation: the file names only the device."""
    processes = np.unique(calls.process)
    if len(processes) < 2:
        return np.full(len(correlation), processes[0] if len(processes) else -1, np.int64)
    pairs = np.unique(np.stack([calls.correlation, calls.process], axis=1), axis=0)
    ids, first, owners = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    at, known = _find(ids, correlation)
    known[known] = owners[at[known]] == 1
    process = np.full(len(correlation), -1, np.int64)
    process[known] = pairs[first[at[known]], 1]
    return process


def _stack_frames(events: Events, rows: Ints, sites: Sites) -> Ints:
    """The place that the call stack of each row names, -1 without one."""
    frame = np.full(len(rows), -1, np.int64)
    if events.stacks:
        stack = events.columns["stack"][rows]
        frame[stack >= 0] = sites_of(events.stacks, sites)[stack[stack >= 0]]
    return frame


def ranges(events: Events, times: Times, rank: int, sites: Sites) -> tuple[Ranges, Frames]:
    """Annotations, framework ops, Python frames and the profiler's own work; all of `sites`."""
    columns = events.columns
    kinds = columns["kind"]
    rows = np.flatnonzero((kinds > SYNC) & (kinds != STEP) & times.good)
    kind, name = columns["kind"][rows], columns["name"][rows]
    process, thread = columns["pid"][rows], columns["tid"][rows]
    thread[(kind == OVERHEAD) & (process < 0)] = -1
    frame = _stack_frames(events, rows, sites)
    python = kind == PYTHON
    name[python], names, frame[python] = _python(name[python], events.names, sites)
    frames = Frames.build(
        len(sites),
        file=[file for file, _, _ in sites],
        line=[line for _, line, _ in sites],
        function=[function for _, _, function in sites],
    )
    table = Ranges.build(
        rank=rank,
        process=process,
        thread=thread,
        kind=_kinds(kind, _RANGE_KINDS),
        name=coded(name, names),
        start=times.start[rows],
        end=times.end[rows],
        frame=frame,
    )
    return in_order(table), frames


def _python(
    name: npt.NDArray[np.int32], names: list[str], sites: Sites
) -> tuple[npt.NDArray[np.int32], list[str], Ints]:
    """Frames out of names such as 'engine.py(12): step', each distinct name looked at once.

    Names of objects lose their addresses, so that calls of one function share one name.
    """
    known = Codes(zip(names, range(len(names)), strict=True))
    new_name = np.arange(len(names), dtype=np.int32)
    frame = np.full(len(names), -1, np.int64)
    for code in np.unique(name).tolist():
        site = FRAME.fullmatch(names[code])
        if site:
            frame[code] = sites.setdefault((site[1], int(site[2]), site[3]), len(sites))
        else:
            new_name[code] = known[_ADDRESS.sub("", names[code])]
    return new_name[name], list(known), frame[name]


def steps(events: Events, times: Times, rank: int, table: Ranges) -> Steps:
    """The spans that torch.profiler's schedule marks; old files carry them as ops."""
    codes = table.name.where(lambda name: _STEP.fullmatch(name) is not None)
    found = table.take(codes & table.kind.where(lambda kind: kind in ("annotation", "op")))
    marked = Steps.build(
        len(found),
        rank=found.rank,
        process=found.process,
        number=_numbers(found.name.to_list()),
        start=found.start,
        end=found.end,
    )
    columns = events.columns
    rows = np.flatnonzero((columns["kind"] == STEP) & times.good)
    if not len(rows):
        return marked
    own = Steps.build(
        len(rows),
        rank=rank,
        process=columns["pid"][rows],
        number=_numbers([events.names[n] for n in columns["name"][rows].tolist()]),
        start=times.start[rows],
        end=times.end[rows],
    )
    return Steps.concat([marked, own])


def _numbers(names: list[str]) -> Ints:
    """The number that ends each name."""
    return integers([name.rpartition("#")[2] for name in names])


def _kinds(kind: npt.NDArray[np.int8], words: dict[int, str]) -> Coded:
    return coded(kind, [words.get(k, "") for k in range(max(words) + 1)])
