"""From a Timeline to a Diagnosis: the rules in order, and the invariant that checks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose import bubbles as find_bubbles
from bubblescope.diagnose import (
    clocks as find_clocks,
)
from bubblescope.diagnose import (
    communication,
    doubts,
    fillers,
    findings,
    held,
    launches,
    launchstats,
    markers,
    parts,
    price,
    readsites,
    sites,
    steps,
    typical,
    waits,
)
from bubblescope.diagnose import reads as find_reads
from bubblescope.diagnose.bubbles import DeviceSpan, Gaps
from bubblescope.diagnose.host import HostActivity
from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import (
    Bubbles,
    DeviceDiagnosis,
    Diagnosis,
    Part,
    Pieces,
    ReadSite,
    StepTable,
)
from bubblescope.diagnose.work import QueuedWork
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import Mask, covered_before
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Device:
    """One device on its way through the rules."""

    span: DeviceSpan
    gaps: Gaps
    rules: parts.Rules
    waits: Int


def diagnose(
    timeline: Timeline,
    *,
    marker: str | None = None,
    window: tuple[int | None, int | None] | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Say where the time of every device went.

    Args:
        timeline: the recording.
        marker: name of the range that begins each step; found where None.
        window: steps [first, last) by number to look at, None for an open end.
        progress: called with what is being done and the share done, 0 to 1.

    Raises:
        BubblescopeError: where there is no device operation, no such marker or no such step.
    """
    if not len(timeline.device_ops):
        raise BubblescopeError(
            f"{timeline.meta.source}: no device operation in it: nothing says when the device "
            "worked; record it again with the GPU side on"
        )
    report = progress or (lambda _stage, _share: None)
    report("joining launches", 0.0)
    ops = timeline.device_ops
    joined = launches.join(timeline)
    work = QueuedWork(timeline, joined)
    threads = Threads(timeline)
    reads = find_reads.find(timeline, joined, work, threads)
    clocks = find_clocks.compare(timeline, joined, reads)
    early = find_clocks.too_early(timeline, joined, clocks)

    report("splitting bubbles", 0.3)
    devices: list[_Device] = []
    for span in find_bubbles.devices(ops):
        gaps = find_bubbles.find(ops, joined, span)
        rules = parts.apply_rules(timeline, joined, span, gaps, early, clocks.shift)
        stream_waits = parts.stream_waits(timeline, joined, work, gaps, rules.queued, span)
        devices.append(_Device(span, gaps, rules, stream_waits))
    spans, all_gaps = [d.span for d in devices], [d.gaps for d in devices]
    activity = HostActivity(timeline, threads, reads)
    pieces = [
        parts.cut(d.rules, d.gaps, joined, threads.of_call, d.waits, activity, clocks.shift)
        for d in devices
    ]
    held.mark(pieces, all_gaps, joined)

    report("finding steps", 0.6)
    marks = markers.find(timeline, joined, threads, spans, all_gaps, marker)
    told = markers.phases_of(timeline, joined, marks)
    where = [steps.bounds(timeline, marks, joined, d.span, d.gaps, told) for d in devices]
    tables = [
        steps.table(w, *_times(timeline, d.span), d.gaps, p, int(d.gaps.busy_end[-1]))
        for w, d, p in zip(where, devices, pieces, strict=True)
    ]
    together = steps.together(tables)
    bubbles = [
        Bubbles(
            d.gaps.start,
            d.gaps.end,
            d.gaps.op,
            joined.of_op[d.gaps.op],
            np.searchsorted(t.start, d.gaps.start, "right") - 1,
        )
        for d, t in zip(devices, tables, strict=True)
    ]

    report("pricing reads", 0.8)
    counted = _cut_steps(together, window)
    inside = [_inside(d, t, window) for d, t in zip(devices, tables, strict=True)]
    kept = [_within(p, b, i) for p, b, i in zip(pieces, bubbles, inside, strict=True)]
    waited = reads.waited(clocks.shift)
    prices = price.charge(
        reads,
        waited,
        [
            price.late_time(p, b, threads.of_call, joined.begin, n, clocks.shift)
            for n, (p, b) in enumerate(zip(kept, bubbles, strict=True))
        ],
        [
            price.late_bubbles(d.rules, p, b, threads.of_call, joined.begin, n)
            for n, (d, p, b) in enumerate(zip(devices, kept, bubbles, strict=True))
        ],
    )
    places = sites.places(timeline, reads, threads)
    read_sites = readsites.find(
        places, joined, reads, waited, prices, marks, counted, window, len(devices)
    )

    done: list[DeviceDiagnosis] = []
    for n, d in enumerate(devices):
        table = _cut_steps(tables[n], window)
        done.append(_device(timeline, d, bubbles[n], kept[n], table, inside[n], read_sites[n + 1]))
    window_ns = sum(x.window_ns for x in done)
    unknown = sum(x.unknown_ns for x in done) / window_ns if window_ns else 0.0
    filled = fillers.find(timeline, kept, counted)
    seen = [
        communication.Place(d.span, d.gaps, k, _cut_steps(t, window), i)
        for d, k, t, i in zip(devices, kept, tables, inside, strict=True)
    ]
    health, warnings = doubts.find(timeline, joined, clocks, marks, int(early.sum()), unknown)
    report("done", 1.0)
    return Diagnosis(
        meta=timeline.meta,
        marker=marks.name if marks is not None else "",
        devices=tuple(done),
        steps=counted,
        reads=read_sites[0],
        fillers=filled,
        findings=findings.find(
            timeline,
            joined,
            list(zip(bubbles, kept, strict=True)),
            counted,
            window_ns,
            read_sites[0],
            filled,
            prices.of_part,
            waits.possible_owners(kept, bubbles, reads, threads, places, clocks.shift),
        ),
        health=health,
        warnings=warnings,
        mostly_lost=doubts.mostly_lost(timeline, joined),
        clocks=clocks,
        level=timeline.meta.level or _level(timeline, joined),
        markers=marks,
        communication=communication.find(timeline, joined, threads, seen, counted),
        launches=launchstats.find(timeline, joined, seen, counted, clocks.shift),
    )


def _times(timeline: Timeline, span: DeviceSpan) -> tuple[Int, Int]:
    rows = slice(span.first, span.stop)
    return timeline.device_ops.start[rows], timeline.device_ops.end[rows]


def _inside(
    device: _Device, table: StepTable, window: tuple[int | None, int | None] | None
) -> tuple[int, int]:
    """The window of a device: from its first to its last operation, or the steps asked for."""
    if window is None:
        return int(device.gaps.busy_start[0]), int(device.gaps.busy_end[-1])
    chosen = _chosen(table, window)
    if not chosen.any():
        have = "no steps were found"
        if table.whole.any():
            numbers = table.number[table.whole]
            have = f"the recording has steps {numbers[0]} to {numbers[-1]}"
        first, last = ("" if w is None else w for w in window)
        raise BubblescopeError(f"--window {first}:{last}: no such steps; {have}")
    return int(table.start[chosen][0]), int(table.end[chosen][-1])


def _chosen(table: StepTable, window: tuple[int | None, int | None]) -> Mask:
    first, last = window
    chosen = table.number >= (0 if first is None else first)
    if last is not None:
        chosen &= table.number < last
    return chosen


def _cut_steps(table: StepTable, window: tuple[int | None, int | None] | None) -> StepTable:
    if window is None:
        return table
    return table.rows(_chosen(table, window))


def _within(pieces: Pieces, bubbles: Bubbles, inside: tuple[int, int]) -> Pieces:
    """The pieces inside the window; no bubble lies across its edge."""
    rows = (pieces.start >= inside[0]) & (pieces.end <= inside[1])
    if rows.all():
        return pieces
    return pieces.rows(rows)


def _device(
    timeline: Timeline,
    device: _Device,
    bubbles: Bubbles,
    pieces: Pieces,
    table: StepTable,
    inside: tuple[int, int],
    reads: tuple[ReadSite, ...],
) -> DeviceDiagnosis:
    span, gaps = device.span, device.gaps
    start, end = _times(timeline, span)
    edges = np.array(inside)
    (busy,) = np.diff(covered_before(gaps.busy_start, gaps.busy_end, edges)).tolist()
    (durations,) = np.diff(covered_before(start, end, edges)).tolist()
    opaque = timeline.device_ops.kind.take(slice(span.first, span.stop)).where(
        lambda kind: kind == "graph"
    )
    totals = np.zeros(len(Part), np.int64)
    np.add.at(totals, pieces.part.astype(np.int64), pieces.end - pieces.start)
    if busy + int(totals.sum()) != inside[1] - inside[0]:
        raise AssertionError(
            f"device {span.device}: busy {busy} + bubble parts {int(totals.sum())} is not the "
            f"window {inside[1] - inside[0]} ns; please report this with the recording"
        )
    name = next(
        (d.name for d in timeline.meta.devices if d.rank == span.rank and d.index == span.device),
        "",
    )
    return DeviceDiagnosis(
        rank=span.rank,
        device=span.device,
        name=name,
        start=inside[0],
        end=inside[1],
        busy_ns=busy,
        overlapped_ns=durations - busy,
        opaque_ns=_union(start[opaque], end[opaque], inside),
        operations=int(((start < inside[1]) & (end >= inside[0])).sum()),
        parts_ns={p: int(totals[p]) for p in Part},
        steps=table,
        bubbles=bubbles,
        pieces=pieces,
        reads=reads,
        typical_step=typical.find(table, pieces),
    )


def _union(start: Int, end: Int, inside: tuple[int, int]) -> int:
    """Length of the union of intervals ordered by start, inside the window."""
    if not len(start):
        return 0
    start, end = np.clip(start, *inside), np.clip(end, *inside)
    reach = np.maximum.accumulate(end)
    before = np.append(start[:1], np.maximum(reach[:-1], start[1:]))
    return int(np.maximum(reach - before, 0).sum())


def _level(timeline: Timeline, joined: Launches) -> str:
    """Whether graphs were recorded by their nodes or whole."""
    if joined.graph.any():
        rows = np.bincount(joined.of_op[joined.graph])
        return "node" if rows.max() > 1 else ""
    return "graph" if timeline.device_ops.kind.where(lambda k: k == "graph").any() else ""
