"""Findings: what to act on, ranked by the device idle at stake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import (
    Bubbles,
    Doing,
    Filler,
    Finding,
    Part,
    Pieces,
    ReadSite,
    StepTable,
    median_ns,
)
from bubblescope.diagnose.sites import Place
from bubblescope.timeline import Timeline
from bubblescope.timeline.tables import Int

_WHY = {
    Part.HOST_GAP: "The device ran dry while the launching thread prepared work: do less there, "
    "move it off the step, or put it into a graph.",
    Part.HOST_WAIT: "The launching thread waited for another thread while the device was dry.",
    Part.LAUNCH_CALL: "The device ran dry while the launch call itself was running: launch fewer "
    "and larger pieces, or launch earlier.",
    Part.LAUNCH_LATENCY: "The operation began some time after its launch call had returned, on an "
    "empty device: the way from the host to the device, paid because nothing was queued.",
    Part.STREAM_WAIT: "A queued operation waited for an event of another stream or device.",
    Part.DEVICE_GAP: "The next operation was queued, but did not begin when the one before it "
    "ended: PDL overlaps that boundary, fusion removes it.",
    Part.GRAPH_GAP: "Between nodes of one graph replay, where the host has no part. Recording "
    "every node lengthens these gaps; fewer and larger kernels, or PDL, remove them.",
    Part.UNRESOLVED: "The clocks of host and device contradict each other here, so that the "
    "time cannot be split.",
}
_TITLE = {
    Part.HOST_GAP: "The host prepares work while the device is dry",
    Part.HOST_WAIT: "The launching thread waits for another thread while the device is dry",
    Part.LAUNCH_CALL: "Launch calls without a name run while the device is dry",
    Part.LAUNCH_LATENCY: "Launches reach an empty device late",
    Part.STREAM_WAIT: "Streams wait for events of other work",
    Part.DEVICE_GAP: "The device pauses between kernels that were already queued",
    Part.GRAPH_GAP: "The device pauses between the nodes of graphs",
    Part.UNRESOLVED: "Idle that the clocks do not let us split",
}
_INFLATED = (
    " Every node of the graph was recorded, and that slows this very call: most of this time can "
    "be the profiler's. Measure it with a graph-level capture before acting on it."
)
_OWN_GAPS = (
    "Between nodes of one graph replay, where the host has no part: what the stream thread itself "
    "needs from one operation to the next, recorded or not. A GPU needs far less."
)


@dataclass(frozen=True, slots=True)
class Slice:
    """Idle that one finding is about: in all, and per step."""

    ns: int
    per_step: int | None


def find(
    timeline: Timeline,
    launches: Launches,
    devices: list[tuple[Bubbles, Pieces]],
    steps: StepTable,
    window_ns: int,
    reads: tuple[ReadSite, ...],
    fillers: tuple[Filler, ...],
    charged: Int,
    waited_for: tuple[Place, ...],
) -> tuple[Finding, ...]:
    """All findings: the ranked ones by idle, then those that only a node-level window shows.

    charged: how much of each part's time the reads are charged with, shape (len(Part),).
    waited_for: reads on other threads during host waits.
    """
    lengths = median_ns(steps.length_ns[steps.counted()])
    # Top figures are sums over devices, so a step is as long as it is on all of them.
    whole = window_ns if lengths is None else lengths * len(devices)

    def share(ns: int, per_step: int | None) -> float:
        return (ns if per_step is None else per_step) / whole if whole else 0.0

    found = [_of_read(r, share(r.exposed_idle_ns, r.exposed_idle_ns_per_step)) for r in reads]
    found = [f for f in found if f.exposed_idle_ns > 0]
    node_level = node_level_calls(timeline, launches)
    for part, call, inflated, time in _slices(timeline, devices, steps, node_level):
        if time.ns == 0:
            continue
        title = f"{call} runs while the device is dry" if call else _TITLE[part]
        if part == Part.LAUNCH_CALL and inflated:
            nodes = _nodes(launches, timeline, call)
            title = f"{call} ({nodes}) runs while the device is dry"
        why = _WHY[part] + (_INFLATED if part == Part.LAUNCH_CALL and inflated else "")
        if part == Part.GRAPH_GAP and not timeline.meta.lengthens_graphs:
            why = _OWN_GAPS
        if part == Part.HOST_WAIT and waited_for:
            why += f" It may be for {', '.join(_place(p) for p in waited_for[:3])}."
        if part == Part.HOST_GAP:
            why += _most(fillers)
            if charged[part]:
                why += f" Blocking reads are charged with {charged[part] / time.ns:.0%} of it."
        found.append(
            Finding(
                kind=part.label,
                title=title,
                why=why,
                exposed_idle_ns=time.ns,
                exposed_idle_ns_per_step=time.per_step,
                share=share(time.ns, time.per_step),
                ranked=not inflated,
                call=call,
            )
        )

    found += _allocator(fillers, steps, share)

    def weight(f: Finding) -> tuple[bool, int, int]:
        per_step = f.exposed_idle_ns_per_step
        return not f.ranked, -(f.exposed_idle_ns if per_step is None else per_step), 0

    return tuple(sorted(found, key=weight))


def _place(read: ReadSite | Place) -> str:
    """A read and where it is: "cudaStreamSynchronize at engine.py:12"."""
    if read.site is not None:
        return f"{read.name} at {read.site.file}:{read.site.line}"
    return f"{read.name} in {read.under}" if read.under else read.name


def _of_read(read: ReadSite, share: float) -> Finding:
    return Finding(
        kind="blocking read",
        title=f"{_place(read)} holds the host",
        why="The host waits for the device here, and so launches what comes next too late. Keep "
        "the value on the device, read it a step later, or do without it.",
        exposed_idle_ns=read.exposed_idle_ns,
        exposed_idle_ns_per_step=read.exposed_idle_ns_per_step,
        share=share,
        ranked=True,
        call=read.name,
        site=read.site,
        within=read.within,
    )


def _allocator(
    fillers: tuple[Filler, ...], steps: StepTable, share: Callable[[int, int | None], float]
) -> list[Finding]:
    """The part of the host gaps that lies in allocator calls: a cause with a cure of its own."""
    calls = [f for f in fillers if f.doing == Doing.ALLOCATOR.label]
    if not calls:
        return []
    ns = sum(f.ns for f in calls)
    per_step = sum(f.ns_per_step or 0 for f in calls) if steps.counted().any() else None
    asking = ", ".join(dict.fromkeys(f.under for f in calls if f.under))
    return [
        Finding(
            kind="allocator",
            title=f"{', '.join(dict.fromkeys(f.name for f in calls))} hold the launching thread",
            why=f"Part of the host gap{f', asked for by {asking}' if asking else ''}. Allocating "
            "and freeing device memory in the step makes the host wait: reuse buffers, or let the "
            "caching allocator keep them.",
            exposed_idle_ns=ns,
            exposed_idle_ns_per_step=per_step,
            share=share(ns, per_step),
            ranked=True,
            call=calls[0].name,
        )
    ]


def _most(fillers: tuple[Filler, ...]) -> str:
    named = list(dict.fromkeys(f.name for f in fillers if f.name))[:3]
    return f" Mostly in {', '.join(named)}." if named else ""


def node_level_calls(timeline: Timeline, launches: Launches) -> np.ndarray:
    """Mask of the graph launches that took longer because every node was recorded."""
    if not timeline.meta.lengthens_graphs:
        return np.zeros(len(timeline.host_calls), np.bool_)
    nodes = np.zeros(len(timeline.host_calls), np.int64)
    np.add.at(nodes, launches.of_op[launches.graph], 1)
    return nodes > 1


def _nodes(launches: Launches, timeline: Timeline, call: str) -> str:
    rows = launches.of_op[launches.graph]
    sizes = np.unique(np.bincount(rows)[np.unique(rows)]) if len(rows) else np.zeros(0, int)
    if len(sizes) == 1:
        return f"{sizes[0]:,} nodes"
    return f"graphs of up to {sizes.max():,} nodes"


def _slices(
    timeline: Timeline,
    devices: list[tuple[Bubbles, Pieces]],
    steps: StepTable,
    node_level: np.ndarray,
) -> list[tuple[Part, str, bool, Slice]]:
    """Each part's time; launch calls by the call's name and by whether nodes were recorded."""
    names = timeline.host_calls.name
    pieces = Pieces.concat([p for _, p in devices])
    part, start, length = pieces.part, pieces.start, pieces.end - pieces.start
    launch = np.concatenate([b.launch[p.bubble] for b, p in devices])
    result: list[tuple[Part, str, bool, Slice]] = []
    for p in Part:
        if p in (Part.READ_TAIL, Part.UNKNOWN):  # reads are priced; unknown is a warning
            continue
        mine = np.flatnonzero(part == p)
        if p != Part.LAUNCH_CALL:
            slice_ = _slice(start[mine], length[mine], steps)
            result.append((p, "", p == Part.GRAPH_GAP, slice_))
            continue
        key = names.codes[launch[mine]].astype(np.int64) * 2 + node_level[launch[mine]]
        for value in np.unique(key).tolist():
            rows = mine[key == value]
            slice_ = _slice(start[rows], length[rows], steps)
            result.append((p, names.values[value // 2], bool(value % 2), slice_))
    return result


def _slice(start: Int, length: Int, steps: StepTable) -> Slice:
    if not steps.counted().any():
        return Slice(int(length.sum()), None)
    step = np.searchsorted(steps.start, start, "right") - 1
    each = np.zeros(len(steps.start), np.int64)
    np.add.at(each, step[step >= 0], length[step >= 0])
    return Slice(int(length.sum()), steps.median(each))
