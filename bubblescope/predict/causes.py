"""What each device operation waited for: its launch, the operation before it, or an event.

The recording says when an operation began, not why. What it waited for keeps its recorded delay;
of everything else only a usual delay is kept, short enough not to have mattered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.launches import NEVER, Launches
from bubblescope.diagnose.model import median_ns
from bubblescope.diagnose.work import QueuedWork
from bubblescope.predict import crossings
from bubblescope.predict.crossings import Crossings
from bubblescope.predict.host import Spans
from bubblescope.predict.queues import Queues
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

BOUNDARY_NS = 1_000
"""Between two queued operations, where the recording shows no such boundary."""


@dataclass(frozen=True, slots=True, eq=False)
class Causes:
    """One row a link of a queue, in the order of Queues.order; times in ns.

    launch: the span that launches it, -1 where none is known or where the operation before it in
    its graph replay decides. latency: from the beginning of that span to the operation's start.
    gap: from the end of the link before, 0 where the two overlap. late: the launch decided when it
    began. crossings: edges between queues.
    """

    launch: Int
    latency: Int
    gap: Int
    late: Mask
    crossings: Crossings


def find(
    timeline: Timeline,
    launches: Launches,
    work: QueuedWork,
    spans: Spans,
    queues: Queues,
    threads: Int,
    start: Int,
    end: Int,
) -> Causes:
    """The causes of every link. start, end: of the operations, on the host's clock."""
    calls = timeline.host_calls
    row = queues.order
    before = queues.before[row]
    free = np.where(before >= 0, end[before], NEVER)
    call = launches.of_op[row]
    launched = (call >= 0) & (~launches.graph[row] | _first_of_launch(timeline, launches)[row])
    safe = np.maximum(call, 0)
    if len(calls):
        span = spans.of_call[safe]
        called, returned, opened = calls.start[safe], calls.end[safe], spans.begin[span]
    else:
        span = called = returned = opened = np.zeros(len(row), np.int64)

    # When each could have begun by its launch, and by its queue.
    latency = start[row] - called
    # One that waits for an event says nothing of the usual delays.
    found = crossings.recorded(timeline, launches, work, queues, row, launched)
    held = np.zeros(len(row), np.bool_)
    held[found.target] = True
    dry = launched & (before >= 0) & (free <= called) & ~held
    usual = _usual_latency(timeline, launches, call, latency, launched, dry)
    ready = np.where(launched, called + usual, NEVER)
    overlaps = queues.overlaps[row]
    chained = (before >= 0) & ~overlaps
    gap = np.where(chained, start[row] - free, 0)
    inner = launches.graph[row] & ~launched
    plain = chained & launched & ~held
    surely = plain & (ready <= free)
    boundary = median_ns(gap[surely if surely.any() else plain & (returned <= free)])
    usual_gap = BOUNDARY_NS if boundary is None else boundary
    in_graph = median_ns(gap[chained & inner])

    # By usual delays the queue came last; or no more than a usual gap was seen behind it.
    by_queue = (ready <= free + usual_gap) | ((returned <= free) & (gap <= usual_gap))
    queued = chained & (~launched | by_queue)

    # Other queues: events as recorded, then what must have been, then branches of graphs.
    found = crossings.settle(found, start, end, row, free, ready, returned, usual_gap)
    waits = np.zeros(len(row), np.bool_)
    waits[found.target[found.bound]] = True
    delay = start[row] - np.maximum(ready, np.where(chained, free + usual_gap, NEVER))
    guessed = crossings.inferred(
        timeline,
        launches,
        queues,
        threads,
        row,
        launched & ~overlaps & ~waits,
        np.maximum(ready, free),
        delay,
        start,
        end,
    )
    nodes = crossings.in_graphs(timeline, launches, queues, row, inner & ~overlaps, start, end)
    every = Crossings.concat([found, guessed, nodes])
    waits[every.target[every.bound]] = True

    # What decided keeps its recorded delay, everything else a usual one.
    usual_here = np.where(inner, usual_gap if in_graph is None else in_graph, usual_gap)
    late = launched & ~queued & ~waits
    keeps_gap = chained & ~waits & (queued | ~launched)
    gap = np.where(keeps_gap, gap, np.minimum(gap, usual_here))
    lag = np.where(late & ~overlaps, latency, np.minimum(latency, usual))
    lag = np.maximum(lag, 0)
    return Causes(
        launch=np.where(launched, span, -1),
        latency=lag + (called - opened),
        gap=gap,
        late=late,
        crossings=every,
    )


def _first_of_launch(timeline: Timeline, launches: Launches) -> Mask:
    """The first operation of each launch on each device: it is the one that the launch starts."""
    numbers, device = np.unique(timeline.device_ops.device, return_inverse=True)
    key = launches.of_op * len(numbers) + device
    first = np.zeros(len(key), np.bool_)
    first[np.unique(key, return_index=True)[1]] = True
    return first


def _usual_latency(
    timeline: Timeline,
    launches: Launches,
    call: Int,
    latency: Int,
    launched: Mask,
    dry: Mask,
) -> Int:
    """From a launch call's beginning to its operation's start, where nothing else holds it up.

    The median over launches to a dry queue by calls of the same name, of graphs those of as many
    nodes; where there is none, the least that was seen.
    """
    usual = np.zeros(len(call), np.int64)
    rows = np.flatnonzero(launched)
    if not len(rows):
        return usual
    nodes = np.bincount(launches.of_op[launches.graph], minlength=len(timeline.host_calls))
    key = timeline.host_calls.name.codes[call[rows]] * (nodes.max() + 1) + nodes[call[rows]]
    value = np.maximum(latency[rows], 0)
    order = np.lexsort((value, ~dry[rows], key))
    _, first, group = np.unique(key[order], return_index=True, return_inverse=True)
    often = np.bincount(group[dry[rows][order]], minlength=len(first))
    middle = first + np.maximum(often - 1, 0) // 2
    usual[rows[order]] = value[order][middle][group]
    return usual
