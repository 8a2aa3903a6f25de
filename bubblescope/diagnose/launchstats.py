"""Launch statistics: latencies, short kernels, run-ahead, and calls that cost the host time."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bubblescope.diagnose import pauses
from bubblescope.diagnose.communication import Place
from bubblescope.diagnose.issue import Calls, HostCost, LaunchStatistics, RunAhead, Slice, Spread
from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import StepTable, median_ns
from bubblescope.timeline import Timeline, api
from bubblescope.timeline.intervals import Mask, in_order
from bubblescope.timeline.tables import Int

SLICES = 64
"""Into so many equal parts the window is cut to show run-ahead over time."""
_PAGEABLE = re.compile(r"^Memcpy (\w+) .*Pageable")


@dataclass(frozen=True, slots=True, eq=False)
class _Launched:
    """What calls launched on one device, a row a call, in the order in which it began to run.

    call: row of `host_calls`. op: its first operation on the device. dry: the device had nothing
    to do when the call began. start: when the operation began, in device time.
    """

    call: Int
    op: Int
    dry: Mask
    start: Int


def find(
    timeline: Timeline, launches: Launches, places: list[Place], steps: StepTable, shift: int
) -> LaunchStatistics | None:
    """Statistics of each device's window; None where no launch is known.

    steps: those of all devices together. shift: what to add to device times.
    """
    calls = timeline.host_calls
    graph = calls.name.where(api.is_graph_launch)
    kernel = calls.name.where(api.is_kernel_launch)
    found = [_of_device(timeline, launches, p, shift) for p in places]
    launching = graph | kernel
    begun = [x if launching[x.call].all() else _only(x, launching[x.call]) for x, _ in found]
    if not sum(len(x.call) for x in begun):
        return None
    call = np.concatenate([x.call for x in begun])
    dry = np.concatenate([x.dry for x in begun])
    start = np.concatenate([x.start for x in begun]) + shift
    called, returned = calls.start[call], calls.end[call]
    length, wait = returned - called, np.maximum(start - called, 0)
    is_kernel = kernel[call]
    kinds = []
    for name, mask in (("kernel", is_kernel), ("graph", ~is_kernel)):
        spread = Spread.of(length[mask])
        if spread is not None:
            idle, queued = mask & dry, mask & ~dry
            waited = np.maximum(start[queued] - returned[queued], 0)
            kinds.append(Calls(name, spread, Spread.of(wait[idle]), Spread.of(waited)))
    ops = timeline.device_ops
    own = np.concatenate([x.op for x in begun])[is_kernel]
    ran = ops.end[own] - ops.start[own]
    short = ran < length[is_kernel]
    paused = pauses.find(timeline, places, steps)
    sums = [
        _per_step(begun, places, steps, np.split(v, np.cumsum([len(x.call) for x in begun])[:-1]))
        for v in (np.ones(len(call), np.int64), length, wait)
    ]
    return LaunchStatistics(
        launches=len(call),
        launches_per_step=sums[0],
        call_ns=int(length.sum()),
        call_ns_per_step=sums[1],
        launch_and_queue_ns=int(wait.sum()),
        launch_and_queue_ns_per_step=sums[2],
        calls=tuple(kinds),
        kernels=len(own),
        short=int(short.sum()),
        short_ns=int(ran[short].sum()),
        run_ahead=tuple(ahead for _, ahead in found if ahead is not None),
        pageable=_pageable(timeline, launches, places, shift),
        allocator=_allocator(timeline, places, begun, shift),
        pauses_count=len(paused),
        pauses_ns=sum(p.ns - p.typical_ns for p in paused),
        pauses=tuple(paused[:10]),
    )


def _only(launched: _Launched, mask: Mask) -> _Launched:
    """The rows that a mask chooses."""
    return _Launched(
        launched.call[mask], launched.op[mask], launched.dry[mask], launched.start[mask]
    )


def _of_device(
    timeline: Timeline, launches: Launches, place: Place, shift: int
) -> tuple[_Launched, RunAhead | None]:
    """What was launched on one device in its window, and how far ahead the host was each time."""
    ops, rows = timeline.device_ops, slice(place.span.first, place.span.stop)
    of_op, begin, start = launches.of_op[rows], launches.begin[rows], ops.start[rows]
    end = ops.end[rows] + shift
    known = np.arange(len(of_op))
    if (of_op < 0).any():
        known = np.flatnonzero(of_op >= 0)
        of_op, begin, start, end = of_op[known], begin[known], start[known], end[known]
    if not len(known):
        none = np.zeros(0, np.int64)
        return _Launched(none, none, none > 0, none), None
    in_turn = bool((begin[1:] >= begin[:-1]).all())
    order = slice(None) if in_turn else np.argsort(begin, kind="stable")
    given, reach = begin[order], np.maximum.accumulate(end[order])
    # All operations of a call are given at once: what was there before is before the first of them.
    at = np.append(0, np.flatnonzero(given[1:] != given[:-1]) + 1)
    ahead = np.zeros(len(at), np.int64)
    ahead[1:] = np.maximum(reach[at[1:] - 1] - given[at[1:]], 0)
    inside = _leads(of_op, len(timeline.host_calls))
    inside &= (start >= place.inside[0]) & (start < place.inside[1])
    dry = np.empty(len(known), np.bool_)
    dry[order] = np.repeat(ahead == 0, np.diff(np.append(at, len(known))))
    launched = _Launched(
        of_op[inside], known[inside] + place.span.first, dry[inside], start[inside]
    )
    chosen = np.flatnonzero(np.logical_or.reduceat(inside[order], at))
    if not len(chosen):
        return launched, None
    ahead, at = ahead[chosen], at[chosen]
    depth = at - np.searchsorted(in_order(end), given[at], "right")
    return launched, _run_ahead(place, given[at] - shift, ahead, np.maximum(depth, 0))


def _leads(of_op: Int, calls: int) -> Mask:
    """Mask of the first operation of each call, in the order in which they ran."""
    if (of_op[1:] > of_op[:-1]).all():
        return np.ones(len(of_op), np.bool_)
    first = np.full(calls, -1, np.int64)
    places = np.arange(len(of_op))
    first[of_op[::-1]] = places[::-1]  # of several the one written last stays
    return np.asarray(first[of_op] == places)


def _run_ahead(place: Place, time: Int, ahead: Int, depth: Int) -> RunAhead:
    spread = Spread.of(ahead)
    assert spread is not None
    edges = place.inside[0] + (place.inside[1] - place.inside[0]) * np.arange(SLICES + 1) // SLICES
    # What is launched before the window's first operation runs counts in the first slice.
    cut = np.searchsorted(time, edges[1:-1], "left")
    slices = zip([0, *cut.tolist()], [*cut.tolist(), len(time)], strict=True)
    return RunAhead(
        rank=place.span.rank,
        device=place.span.device,
        launches=len(time),
        dry=int((ahead == 0).sum()),
        ahead=spread,
        depth_median=median_ns(depth) or 0,
        depth_max=int(depth.max()),
        over_time=tuple(
            Slice(int(ahead[a:b].min()), int(depth[a:b].min())) if b > a else None
            for a, b in slices
        ),
    )


def _per_step(
    begun: list[_Launched], places: list[Place], steps: StepTable, values: list[Int]
) -> int | None:
    """Median over counted steps of the sum of values, over all devices."""
    if not steps.counted().any():
        return None
    total = np.zeros(len(steps.number), np.int64)
    for launched, place, value in zip(begun, places, values, strict=True):
        table = place.steps
        if not len(table.number):
            continue
        # Operations are in the order in which they began, and steps tile the window.
        edges = np.append(table.start, table.end[-1])
        cut = np.searchsorted(launched.start, edges, "left")
        sums = np.append(0, np.cumsum(value))
        at = np.minimum(np.searchsorted(table.number, steps.number), len(table.number) - 1)
        total += np.diff(sums[cut])[at]
    return steps.median(total)


def _pageable(
    timeline: Timeline, launches: Launches, places: list[Place], shift: int
) -> tuple[HostCost, ...]:
    """Copies from and to pageable memory, which the host must stage."""
    ops, calls = timeline.device_ops, timeline.host_calls
    names = [_PAGEABLE.match(name) for name in ops.name.values]
    if not any(names):
        return ()
    is_copy = np.array([bool(found) for found in names], np.bool_)[ops.name.codes]
    rows = np.flatnonzero(is_copy & (launches.of_op >= 0))
    stops = np.array([p.span.stop for p in places])
    window = np.array([p.inside for p in places])[np.searchsorted(stops, rows, "right")]
    rows = rows[(ops.start[rows] >= window[:, 0]) & (ops.end[rows] <= window[:, 1])]
    call = launches.of_op[rows]
    blocks = calls.end[call] >= ops.end[rows] + shift
    return _costs(
        [found[1] if found else "" for found in names],
        ops.name.codes[rows],
        (calls.end - calls.start)[call],
        blocks,
    )


def _allocator(
    timeline: Timeline, places: list[Place], begun: list[_Launched], shift: int
) -> tuple[HostCost, ...]:
    """Allocator calls from the first launch of the window to its end."""
    calls = timeline.host_calls
    is_call = calls.name.where(api.is_allocator)
    if not is_call.any():
        return ()
    first = min(int(calls.start[x.call].min()) for x in begun if len(x.call))
    last = max(p.inside[1] for p in places) + shift
    rows = np.flatnonzero(is_call & (calls.start >= first) & (calls.start < last))
    length = (calls.end - calls.start)[rows]
    never = np.zeros(len(rows), np.bool_)
    return _costs(list(calls.name.values), calls.name.codes[rows], length, never)


def _costs(
    names: list[str], code: npt.NDArray[np.int32], length: Int, blocks: Mask
) -> tuple[HostCost, ...]:
    """Sums by name, the longest first."""
    found: dict[str, tuple[int, int, int]] = {}
    for value in np.unique(code).tolist():
        mine = code == value
        sums = (int(mine.sum()), int(blocks[mine].sum()), int(length[mine].sum()))
        old = found.get(names[value], (0, 0, 0))
        found[names[value]] = (old[0] + sums[0], old[1] + sums[1], old[2] + sums[2])
    ordered = sorted(found.items(), key=lambda item: -item[1][2])
    return tuple(HostCost(name, *sums) for name, sums in ordered)
