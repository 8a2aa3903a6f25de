"""One recording and its diagnosis as the bytes that a page unpacks; assets/data.js reads them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from bubblescope.diagnose.model import DeviceDiagnosis, Diagnosis, Doing, Part, StepTable
from bubblescope.report import as_json, header
from bubblescope.report.words import encodable
from bubblescope.timeline import Coded, Timeline, api
from bubblescope.timeline.intervals import runs
from bubblescope.timeline.tables import Int
from bubblescope.view import places
from bubblescope.view.columns import Column, pack
from bubblescope.view.kept import Kept, keep
from bubblescope.view.rows import rows as rows_of

_RISING = frozenset(
    {
        "op.start",
        "op.launch",
        "op.order",
        "call.start",
        "range.start",
        "read.call",
        "bubble.op",
        "piece.bubble",
        "charge.bubble",
        "place.finding",
        "place.bubble",
    }
)
_DOUBTS = 20
"""Notes on the recording that a page lists at most."""
_LEVEL = 6
"""Of deflate: above it, a page takes twice as long to write and is 2 % smaller."""


class Thread(msgspec.Struct, frozen=True):
    """A host thread; thread -1 is what names none."""

    rank: int
    process: int
    thread: int
    name: str
    launches: int


class Stream(msgspec.Struct, frozen=True):
    """A stream of the device of that index; device is its position in `devices`."""

    rank: int
    index: int
    device: int
    stream: int
    operations: int


class Steps(msgspec.Struct, frozen=True):
    """Steps, one entry each; times from the page's zero. parts_ns: a list of all parts a step."""

    number: list[int]
    start_ns: list[int]
    end_ns: list[int]
    counted: list[bool]
    busy_ns: list[int]
    parts_ns: list[list[int]]


class Device(msgspec.Struct, frozen=True):
    """A diagnosed device: its window and steps."""

    rank: int
    index: int
    name: str
    start_ns: int
    end_ns: int
    steps: Steps


class Head(msgspec.Struct, frozen=True):
    """What a page knows of a recording but for its rows. report: as `diagnose --json` prints it.

    doubts: what makes its figures less than certain, in sentences, the most general first.
    zero: the recording's own time of the page's zero, as text, since it may pass 2^53.
    """

    report: msgspec.Raw
    label: str
    run: str
    device: str
    doubts: list[str]
    zero: str
    shift_ns: int
    parts: list[str]
    doings: list[str]
    names: dict[str, list[str]]
    call_kinds: list[str]
    frames: list[tuple[str, int, str]]
    threads: list[Thread]
    streams: list[Stream]
    devices: list[Device]
    steps: Steps
    columns: dict[str, Column]


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A recording for a page. passes: names of those that address a finding, by its index."""

    timeline: Timeline
    diagnosis: Diagnosis
    passes: Mapping[int, Sequence[str]] = field(default_factory=dict)
    label: str = ""


def encode(shown: Shown) -> bytes:
    """The recording, deflated: length of the head (4 bytes), the head as JSON, its columns.

    Raises:
        BubblescopeError: it holds more events than a page can show, or spans more time.
    """
    timeline, diagnosis = shown.timeline, shown.diagnosis
    reasons = places.find(timeline, diagnosis)
    kept = keep(timeline, diagnosis, reasons.launches)
    zero = min(d.start for d in diagnosis.devices)
    streams, op_lane = _streams(timeline, diagnosis, kept)
    threads, call_lane, range_lane = _threads(timeline, kept)
    packed = pack(
        {
            **_operations(timeline, kept, reasons, zero, op_lane),
            **_host(timeline, kept, zero + diagnosis.clocks.shift, call_lane, range_lane),
            **_reads(kept, reasons, zero + diagnosis.clocks.shift),
            **_bubbles(timeline, diagnosis, kept, reasons),
        },
        _RISING,
    )
    names = timeline.host_calls.name
    head = Head(
        report=msgspec.Raw(as_json.to_json(diagnosis, shown.passes)),
        label=encodable(shown.label or timeline.meta.source),
        run=header.run(diagnosis),
        device=header.devices(diagnosis),
        doubts=[encodable(line) for line in header.doubts(diagnosis, _DOUBTS)],
        zero=str(zero),
        shift_ns=diagnosis.clocks.shift,
        parts=[p.label for p in Part],
        doings=[d.label for d in Doing],
        names={
            "op": _texts(timeline.device_ops.name),
            "op_kind": _texts(timeline.device_ops.kind),
            "grid": _texts(timeline.device_ops.grid),
            "block": _texts(timeline.device_ops.block),
            "call": _texts(names),
            "range": _texts(timeline.ranges.name),
            "range_kind": _texts(timeline.ranges.kind),
        },
        call_kinds=[_call_kind(name) for name in names.values],
        frames=[
            (encodable(file), line, encodable(function))
            for file, line, function in zip(
                timeline.frames.file.to_list(),
                timeline.frames.line.tolist(),
                timeline.frames.function.to_list(),
                strict=True,
            )
        ],
        threads=threads,
        streams=streams,
        devices=[_device(d, zero) for d in diagnosis.devices],
        steps=_steps(diagnosis.steps, zero),
        columns=packed.columns,
    )
    text = msgspec.json.encode(head)
    return zlib.compress(len(text).to_bytes(4, "little") + text + packed.data, _LEVEL)


def _texts(names: Coded) -> list[str]:
    return [encodable(value) for value in names.values]


def _call_kind(name: str) -> str:
    """What a call is, for its colour."""
    if api.is_graph_launch(name) or api.is_kernel_launch(name):
        return "launch"
    if api.is_copy(name) or "Memset" in name:
        return "copy"
    if api.is_sync(name) or api.is_query(name):
        return "wait"
    return "allocator" if api.is_allocator(name) else "other"


def _operations(
    timeline: Timeline, kept: Kept, reasons: places.Reasons, zero: int, lane: Int
) -> dict[str, Int]:
    ops = timeline.device_ops.take(kept.ops.rows)
    begin = reasons.launches.begin[kept.ops.rows]
    return {
        "op.start": ops.start - zero,
        "op.length": ops.end - ops.start,
        "op.name": ops.name.codes.astype(np.int64),
        "op.kind": ops.kind.codes.astype(np.int64),
        "op.stream": lane,
        "op.row": rows_of(lane, ops.start, ops.end),
        "op.launch": kept.calls.at(reasons.launches.of_op[kept.ops.rows]),
        "op.order": np.argsort(begin, kind="stable"),
        "op.graph": ops.graph,
        "op.node": ops.node,
        "op.bytes": ops.bytes,
        "op.grid": ops.grid.codes.astype(np.int64),
        "op.block": ops.block.codes.astype(np.int64),
    }


def _host(
    timeline: Timeline, kept: Kept, zero: int, call_lane: Int, range_lane: Int
) -> dict[str, Int]:
    calls = timeline.host_calls.take(kept.calls.rows)
    ranges = timeline.ranges.take(kept.ranges.rows)
    python = ranges.kind.where(lambda kind: kind == "python")
    return {
        "call.start": calls.start - zero,
        "call.length": calls.end - calls.start,
        "call.name": calls.name.codes.astype(np.int64),
        "call.thread": call_lane,
        "call.row": rows_of(call_lane, calls.start, calls.end),
        "call.frame": calls.frame,
        "range.start": ranges.start - zero,
        "range.length": ranges.end - ranges.start,
        "range.name": ranges.name.codes.astype(np.int64),
        "range.kind": ranges.kind.codes.astype(np.int64),
        "range.thread": range_lane,
        "range.row": rows_of(2 * range_lane + python, ranges.start, ranges.end),
        "range.frame": ranges.frame,
    }


def _reads(kept: Kept, reasons: places.Reasons, zero: int) -> dict[str, Int]:
    """The reads whose call is shown, ordered by it; charges name reads by their place here."""
    reads = reasons.reads
    shown, _ = _shown_reads(kept, reasons)
    exposed = np.zeros(len(reads.call), np.int64)
    np.add.at(exposed, reasons.charged.read, reasons.charged.ns)
    return {
        "read.call": kept.calls.at(reads.call[shown]),
        "read.start": reads.begin[shown] - zero,
        "read.length": (reads.end - reads.begin)[shown],
        "read.op": kept.ops.at(reads.op[shown]),
        "read.site": reasons.site[shown],
        "read.waited": reasons.waited[shown].astype(np.int64),
        "read.exposed": exposed[shown],
    }


def _shown_reads(kept: Kept, reasons: places.Reasons) -> tuple[Int, Int]:
    """Rows of the reads that are shown, in order, and the place of every read among them."""
    at = kept.calls.at(reasons.reads.call)
    shown = np.flatnonzero(at >= 0)
    shown = shown[np.argsort(at[shown], kind="stable")]
    place = np.full(len(at), -1, np.int64)
    place[shown] = np.arange(len(shown))
    return shown, place


def _bubbles(
    timeline: Timeline, diagnosis: Diagnosis, kept: Kept, reasons: places.Reasons
) -> dict[str, Int]:
    """Bubbles of all devices one after the other, those in the window, with their pieces.

    Nothing is said twice. A bubble ends where its operation begins; it began where the operations
    before that ended, and `earlier` ns before. A piece ends `left` ns before its bubble. A finding
    is about all of a bubble but `rest` ns.
    """
    columns: dict[str, list[Int]] = {}
    dry = _dry_since(timeline, kept)
    first: list[Int] = []
    count = 0

    def add(name: str, values: Int) -> None:
        columns.setdefault(name, []).append(values)

    for number, device in enumerate(diagnosis.devices):
        bubbles, pieces = device.bubbles, device.pieces
        chosen = np.unique(pieces.bubble)
        place = np.full(len(bubbles.start), -1, np.int64)
        place[chosen] = count + np.arange(len(chosen))
        first.append(place)
        count += len(chosen)
        add("bubble.op", kept.ops.at(bubbles.op[chosen]))
        add("bubble.earlier", dry[kept.ops.at(bubbles.op[chosen])] - bubbles.start[chosen])
        add("bubble.device", np.full(len(chosen), number))
        add("piece.bubble", place[pieces.bubble])
        add("piece.left", bubbles.end[pieces.bubble] - pieces.end)
        add("piece.part", pieces.part.astype(np.int64))
        add("piece.doing", pieces.doing.astype(np.int64))
        add("piece.call", kept.calls.at(pieces.call))
        add("piece.range", kept.ranges.at(pieces.range))
    made = {name: np.concatenate(values) for name, values in columns.items()}

    def at(device: Int, bubble: Int) -> Int:
        result = np.full(len(device), -1, np.int64)
        for number, place in enumerate(first):
            mine = device == number
            result[mine] = place[bubble[mine]]
        return result

    def length(device: Int, bubble: Int) -> Int:
        result = np.zeros(len(device), np.int64)
        for number, of in enumerate(diagnosis.devices):
            rows = bubble[device == number]
            result[device == number] = (of.bubbles.end - of.bubbles.start)[rows]
        return result

    charged, found = reasons.charged, reasons.places
    _, read = _shown_reads(kept, reasons)
    return made | {
        "charge.bubble": at(charged.device, charged.bubble),
        "charge.read": read[charged.read],
        "charge.ns": charged.ns,
        "place.finding": found.finding,
        "place.bubble": at(found.device, found.bubble),
        "place.rest": length(found.device, found.bubble) - found.ns,
    }


def _dry_since(timeline: Timeline, kept: Kept) -> Int:
    """When the operations shown before each one on its device had all ended."""
    ops = timeline.device_ops.take(kept.ops.rows)
    since = ops.start.copy()
    first, length = runs(ops.rank, ops.device)
    for f, n in zip(first.tolist(), length.tolist(), strict=True):
        since[f + 1 : f + n] = np.maximum.accumulate(ops.end[f : f + n])[:-1]
    return since


def _streams(timeline: Timeline, diagnosis: Diagnosis, kept: Kept) -> tuple[list[Stream], Int]:
    """The streams that are shown, and which of them each operation is in."""
    ops = timeline.device_ops.take(kept.ops.rows)
    devices = {(d.rank, d.device): n for n, d in enumerate(diagnosis.devices)}
    keys, lane, count = np.unique(
        np.stack([ops.rank, ops.device, ops.stream]),
        axis=1,
        return_inverse=True,
        return_counts=True,
    )
    streams = [
        Stream(rank, device, devices[rank, device], stream, number)
        for (rank, device, stream), number in zip(keys.T.tolist(), count.tolist(), strict=True)
    ]
    return streams, lane.reshape(-1)


def _threads(timeline: Timeline, kept: Kept) -> tuple[list[Thread], Int, Int]:
    """The threads that are shown, and which of them each call and each range is on."""
    calls = timeline.host_calls.take(kept.calls.rows)
    ranges = timeline.ranges.take(kept.ranges.rows)
    both = [
        np.concatenate([getattr(calls, name), getattr(ranges, name)])
        for name in ("rank", "process", "thread")
    ]
    keys, lane = np.unique(np.stack(both), axis=1, return_inverse=True)
    lane = lane.reshape(-1)
    named = {(t.rank, t.process, t.thread): t.name for t in timeline.meta.threads}
    launching = calls.name.where(lambda n: _call_kind(n) in ("launch", "copy"))
    launches = np.bincount(lane[: len(calls)][launching], minlength=keys.shape[1])
    threads = [
        Thread(rank, process, thread, encodable(named.get((rank, process, thread), "")), number)
        for (rank, process, thread), number in zip(keys.T.tolist(), launches.tolist(), strict=True)
    ]
    return threads, lane[: len(calls)], lane[len(calls) :]


def _device(device: DeviceDiagnosis, zero: int) -> Device:
    return Device(
        device.rank,
        device.device,
        encodable(device.name),
        device.start - zero,
        device.end - zero,
        _steps(device.steps, zero),
    )


def _steps(steps: StepTable, zero: int) -> Steps:
    return Steps(
        number=steps.number.tolist(),
        start_ns=(steps.start - zero).tolist(),
        end_ns=(steps.end - zero).tolist(),
        counted=steps.counted().tolist(),
        busy_ns=steps.busy_ns.tolist(),
        parts_ns=steps.parts_ns.tolist(),
    )
