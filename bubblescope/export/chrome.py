"""The Chrome trace format, as Kineto writes it: opens in Perfetto, and reads back exactly."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import numpy as np

from bubblescope.diagnose.model import DeviceDiagnosis, Diagnosis, Doing, Part
from bubblescope.export.places import DEVICE_PID, OWN_PID, HostTracks, Places, Tracks
from bubblescope.ingest.kineto_own import Own, OwnCall
from bubblescope.timeline import Coded, DeviceOps, Timeline
from bubblescope.timeline.api import is_graph_launch
from bubblescope.timeline.tables import Int
from bubblescope.whole import refuse_existing, written

_OP_CATEGORY = {
    "kernel": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "graph": "bubblescope_graph",
}
_RANGE_CATEGORY = {
    "annotation": "user_annotation",
    "op": "cpu_op",
    "python": "python_function",
    "overhead": "overhead",
    "os": "bubblescope_os",
}
_BATCH = 4096


def check(path: Path, force: bool) -> None:
    """Refuse a path that exists, before any work is done for it."""
    refuse_existing(path, force=force)


def write(timeline: Timeline, diagnosis: Diagnosis, path: Path, force: bool) -> None:
    """Write the recording and its diagnosis; gzipped where the name ends in .gz.

    Host threads, streams (lanes of their own for operations that overlap), a flow from each launch
    to what it started, and on tracks of their own the steps, the bubbles and their parts. Times
    are decimal microseconds from `baseTimeNanoseconds`, exact to the nanosecond.

    Raises:
        BubblescopeError: it cannot be written there.
    """
    check(path, force)
    places = Places(timeline)
    with written(path) as out:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=6, mtime=0) as z:
                _write(timeline, diagnosis, places, cast(IO[bytes], z))
        else:
            _write(timeline, diagnosis, places, out)


def _write(timeline: Timeline, diagnosis: Diagnosis, places: Places, out: IO[bytes]) -> None:
    host = places.host_tracks(timeline)
    head = _head(timeline, places, host)
    out.write(head[:-1] + b',\n"traceEvents": [\n')
    events = _events(timeline, diagnosis, places, host)
    separator = b""
    while lines := list(islice(events, _BATCH)):
        out.write(separator + ",\n".join(lines).encode("utf-8", "replace"))
        separator = b",\n"
    out.write(b"\n]}\n")


def _head(timeline: Timeline, places: Places, host: HostTracks) -> bytes:
    meta, health = timeline.meta, timeline.health
    rows = zip(
        health.rank.tolist(),
        health.kind.to_list(),
        health.count.tolist(),
        health.note.to_list(),
        strict=True,
    )
    own = Own(meta, host.threads, *places.renumbered(), list(rows))
    rank = int(timeline.device_ops.rank.min())
    return msgspec.json.encode(
        {
            "schemaVersion": 1,
            "deviceProperties": [
                {
                    "id": places.device(d.rank, d.index),
                    "name": d.name,
                    "totalGlobalMem": d.memory,
                    "numSms": d.multiprocessors,
                }
                for d in meta.devices
            ],
            "distributedInfo": {"rank": rank, "world_size": meta.world_size},
            "displayTimeUnit": "ns",
            "baseTimeNanoseconds": places.base_ns,
            "bubblescope": own,
        }
    )


def _events(
    timeline: Timeline, diagnosis: Diagnosis, places: Places, host: HostTracks
) -> Iterator[str]:
    device = places.device_tracks(timeline)
    marks = places.step_tracks(timeline)
    return chain(
        _labels(timeline, diagnosis, places, [host.calls, device, marks]),
        _calls(timeline, places, host.calls),
        _ranges(timeline, places, host.ranges),
        _marks(timeline, places, marks),
        _ops(timeline, places, device),
        _flows(timeline, diagnosis, places, host.calls, device),
        *(_diagnosed(d, n, places) for n, d in enumerate(diagnosis.devices)),
    )


# Rows of the recording -------------------------------------------------------------------------


def _calls(timeline: Timeline, places: Places, tracks: Tracks) -> Iterator[str]:
    calls = timeline.host_calls
    own = zip(
        calls.status.tolist(),
        calls.sync.to_list(),
        calls.stream.tolist(),
        calls.event_stream.tolist(),
        places.correlation.of(calls.rank, calls.process, calls.event_record).tolist(),
        strict=True,
    )
    ids = places.correlation.of(calls.rank, calls.process, calls.correlation)
    sites = _sites(timeline)
    args = (
        _known(correlation=correlation)
        | ({"Call stack": sites[frame]} if frame >= 0 else {})
        | ({"bubblescope": OwnCall(*said)} if said != _NOTHING else {})
        for correlation, frame, said in zip(ids.tolist(), calls.frame.tolist(), own, strict=True)
    )
    category = calls.name.map(_call_category)
    yield from _slices(category, calls.name, tracks, calls.start, calls.end, places, args)


_NOTHING = msgspec.structs.astuple(OwnCall())


def _call_category(name: str) -> str:
    driver = name.startswith("cu") and name[2:3].isupper()
    return "cuda_driver" if driver else "cuda_runtime"


def _ranges(timeline: Timeline, places: Places, tracks: Tracks) -> Iterator[str]:
    ranges = timeline.ranges
    sites = _sites(timeline)
    args = ({"Call stack": sites[f]} if f >= 0 else {} for f in ranges.frame.tolist())
    category = ranges.kind.map(lambda kind: _RANGE_CATEGORY.get(kind, "user_annotation"))
    yield from _slices(category, ranges.name, tracks, ranges.start, ranges.end, places, args)


def _marks(timeline: Timeline, places: Places, tracks: Tracks) -> Iterator[str]:
    """Step marks, but for those that are read from the annotations that made them."""
    steps, ranges = timeline.steps, timeline.ranges
    told = ranges.take(ranges.name.where(lambda name: name.startswith("ProfilerStep#")))
    known = set(zip(told.rank.tolist(), told.process.tolist(), told.start.tolist(), strict=True))
    rows = zip(steps.rank.tolist(), steps.process.tolist(), steps.start.tolist(), strict=True)
    new = np.array([row not in known for row in rows], np.bool_)
    names = Coded.of(f"step #{n}" for n in steps.number[new].tolist())
    yield from _slices(
        Coded.constant("bubblescope_step", len(names)),
        names,
        Tracks(tracks.pid[new], tracks.tid[new], []),
        steps.start[new],
        steps.end[new],
        places,
        ({} for _ in range(len(names))),
    )


def _ops(timeline: Timeline, places: Places, tracks: Tracks) -> Iterator[str]:
    ops = timeline.device_ops
    columns = {
        "device": places.devices(ops.rank, ops.device),
        "stream": ops.stream,
        "correlation": places.correlation.of(ops.rank, ops.process, ops.correlation),
        "bytes": ops.bytes,
        "graph id": ops.graph,
        "graph node id": ops.node,
        "Seq": ops.sequence,
    }
    rows = zip(*(c.tolist() for c in columns.values()), strict=True)
    args = (
        _known(**dict(zip(columns, row, strict=True)))
        | ({"Collective name": collective, "Process Group Name": group} if collective else {})
        | shape
        for row, collective, group, shape in zip(
            rows, ops.collective.to_list(), ops.group.to_list(), _shapes(ops), strict=True
        )
    )
    category = ops.kind.map(lambda kind: _OP_CATEGORY.get(kind, "kernel"))
    yield from _slices(category, ops.name, tracks, ops.start, ops.end, places, args)


def _shapes(ops: DeviceOps) -> Iterator[dict[str, list[int]]]:
    """Grid and block as Kineto writes them."""
    for grid, block in zip(ops.grid.to_list(), ops.block.to_list(), strict=True):
        both = {"grid": grid, "block": block}
        yield {name: [int(n) for n in text.split(",")] for name, text in both.items() if text}


def _known(**ids: int) -> dict[str, Any]:
    return {name: value for name, value in ids.items() if value >= 0}


def _sites(timeline: Timeline) -> list[str]:
    """Each frame as Kineto writes it: "engine.py(12): step"."""
    frames = timeline.frames
    return [
        f"{file}({max(line, 0)}): {function}"
        for file, line, function in zip(
            frames.file.to_list(), frames.line.tolist(), frames.function.to_list(), strict=True
        )
    ]


def _flows(
    timeline: Timeline, diagnosis: Diagnosis, places: Places, calls: Tracks, device: Tracks
) -> Iterator[str]:
    """From each launch to what it started; from a graph launch to its first operation."""
    from bubblescope.diagnose.launches import join

    of_op = join(timeline).of_op
    start = timeline.device_ops.start
    launched = np.flatnonzero(of_op >= 0)
    graph = timeline.host_calls.name.where(is_graph_launch)
    order = launched[np.lexsort((start[launched], of_op[launched]))]
    again = np.concatenate([[False], of_op[order][1:] == of_op[order][:-1]])
    for op in order[~(again & graph[of_op[order]])].tolist():
        call = int(of_op[op])
        begin = _us(int(timeline.host_calls.start[call]) - places.base_ns)
        arrive = _us(int(start[op]) - places.base_ns)
        flow = f'"id":{op},"cat":"ac2g","name":"ac2g"'
        yield f'{{"ph":"s",{flow},"pid":{calls.pid[call]},"tid":{calls.tid[call]},"ts":{begin}}}'
        yield (
            f'{{"ph":"f","bp":"e",{flow},"pid":{device.pid[op]},"tid":{device.tid[op]},'
            f'"ts":{arrive}}}'
        )


# The diagnosis ---------------------------------------------------------------------------------


def _diagnosed(device: DeviceDiagnosis, number: int, places: Places) -> Iterator[str]:
    """A device's steps, and its bubbles with their parts inside them."""
    steps, bubbles, pieces = device.steps, device.bubbles, device.pieces
    yield from _slices(
        Coded.constant("bubblescope_diagnosis", len(steps.start)),
        Coded.of(f"step {n}" for n in steps.number.tolist()),
        _own_track(2 * number, len(steps.start)),
        steps.start,
        steps.end,
        places,
        (
            {"busy_ns": busy, "whole": whole}
            for busy, whole in zip(steps.busy_ns.tolist(), steps.whole.tolist(), strict=True)
        ),
    )
    inside = (bubbles.start >= device.start) & (bubbles.end <= device.end)
    rows = np.flatnonzero(inside)
    yield from _slices(
        Coded.constant("bubblescope_diagnosis", len(rows)),
        Coded.constant("bubble", len(rows)),
        _own_track(2 * number + 1, len(rows)),
        bubbles.start[rows],
        bubbles.end[rows],
        places,
        (
            {"bubble": n, "length_ns": length}
            for n, length in zip(
                rows.tolist(), (bubbles.end - bubbles.start)[rows].tolist(), strict=True
            )
        ),
    )
    yield from _slices(
        Coded.constant("bubblescope_diagnosis", len(pieces.start)),
        Coded(pieces.part.astype(np.int32), tuple(p.label for p in Part)),
        _own_track(2 * number + 1, len(pieces.start)),
        pieces.start,
        pieces.end,
        places,
        (
            {"bubble": n, "doing": Doing(doing).label} if part == Part.HOST_GAP else {"bubble": n}
            for n, part, doing in zip(
                pieces.bubble.tolist(), pieces.part.tolist(), pieces.doing.tolist(), strict=True
            )
        ),
    )


def _own_track(tid: int, rows: int) -> Tracks:
    return Tracks(np.full(rows, OWN_PID), np.full(rows, tid), [])


# Text ------------------------------------------------------------------------------------------


def _labels(
    timeline: Timeline, diagnosis: Diagnosis, places: Places, tracks: Iterable[Tracks]
) -> Iterator[str]:
    """Names and order of processes and tracks."""
    processes = {
        places.pid(t.rank, t.process): t.name for t in timeline.meta.threads if t.thread == -1
    }
    names = [name for track in tracks for name in track.names]
    own: list[tuple[int, int, str]] = []
    for number, device in enumerate(diagnosis.devices):
        shown = places.device(device.rank, device.device)
        processes[DEVICE_PID + shown] = f"GPU {shown} {device.name}".rstrip()
        own += [(OWN_PID, 2 * number, f"steps, GPU {shown}")]
        own += [(OWN_PID, 2 * number + 1, f"bubbles, GPU {shown}")]
    processes[OWN_PID] = "bubblescope"
    for pid in dict.fromkeys(pid for pid, _, _ in [*names, *own]):
        called = processes.get(pid, "no process named" if pid < 0 else f"process {pid}")
        place = 2 if pid >= DEVICE_PID else int(pid == OWN_PID)
        yield _label("process_name", pid, 0, name=called)
        yield _label("process_sort_index", pid, 0, sort_index=place)
    for order, (pid, tid, called) in enumerate([*names, *own]):
        yield _label("thread_name", pid, tid, name=called)
        yield _label("thread_sort_index", pid, tid, sort_index=order)


def _label(kind: str, pid: int, tid: int, **args: Any) -> str:
    return _json({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})


def _slices(
    category: Coded,
    name: Coded,
    tracks: Tracks,
    start: Int,
    end: Int,
    places: Places,
    args: Iterable[dict[str, Any]],
) -> Iterator[str]:
    """One complete event a row."""
    names = [_json(value) for value in name.values]
    for cat, code, pid, tid, begin, long, said in zip(
        category.to_list(),
        name.codes.tolist(),
        tracks.pid.tolist(),
        tracks.tid.tolist(),
        (start - places.base_ns).tolist(),
        (end - start).tolist(),
        args,
        strict=True,
    ):
        yield (
            f'{{"ph":"X","cat":"{cat}","name":{names[code]},"pid":{pid},"tid":{tid},'
            f'"ts":{_us(begin)},"dur":{_us(long)},"args":{_json(said)}}}'
        )


def _us(ns: int) -> str:
    """Decimal microseconds: a float would lose nanoseconds."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate, which no UTF-8 can hold
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
