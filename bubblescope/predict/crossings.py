"""Edges between device queues: waits on events, recorded or concluded, and branches of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from bubblescope.diagnose.launches import NEVER, Launches
from bubblescope.diagnose.work import QueuedWork
from bubblescope.predict.queues import Queues
from bubblescope.timeline import Timeline, api
from bubblescope.timeline.intervals import Mask, runs
from bubblescope.timeline.tables import Int

NEAR_NS = 10_000
"""An operation that begins so soon after another queue's may have waited for it; one that begins
so late after all that is known to hold it up must have waited for something."""
EVIDENT_NS = 2_000
"""The same, where the program did make the stream wait for some event."""
_TRIES = 8


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Edges from an operation's end to a link's start, one row an edge.

    source: row of `device_ops`. target: place of the link in Queues.order. lag: ns. from_start: the
    edge leaves the source's start. inferred: not recorded. bound: it decided when the link began.
    call: row of `host_calls` that makes the stream wait, -1 where none is known.
    """

    source: Int
    target: Int
    lag: Int
    from_start: Mask
    inferred: Mask
    bound: Mask
    call: Int

    @classmethod
    def concat(cls, parts: Sequence[Crossings]) -> Crossings:
        """All edges of the parts."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    @classmethod
    def make(
        cls,
        source: Int,
        target: Int,
        lag: Int,
        *,
        from_start: Mask | bool = False,
        inferred: bool = False,
        bound: bool = False,
        call: Int | None = None,
    ) -> Crossings:
        """Edges of one kind."""
        rows = len(source)
        return cls(
            source,
            target,
            lag,
            np.full(rows, from_start) if isinstance(from_start, bool) else from_start,
            np.full(rows, inferred),
            np.full(rows, bound),
            np.full(rows, -1, np.int64) if call is None else call,
        )


def recorded(
    timeline: Timeline,
    launches: Launches,
    work: QueuedWork,
    queues: Queues,
    row: Int,
    launched: Mask,
) -> Crossings:
    """Waits of streams for events of which the recording says where they were recorded."""
    calls, ops = timeline.host_calls, timeline.device_ops
    waits = np.flatnonzero(
        calls.sync.where(lambda kind: kind == "stream wait") & (calls.stream >= 0)
    )
    source = work.before_event(waits)
    waits, source = waits[source >= 0], source[source >= 0]
    none = np.zeros(0, np.int64)
    sources, targets, made = [none], [none], [none]
    keys = np.stack([launches.owner[waits], calls.stream[waits]], 1)
    for who, stream in np.unique(keys, axis=0).tolist():
        mine = (keys[:, 0] == who) & (keys[:, 1] == stream)
        links = np.flatnonzero(
            launched & (launches.op_owner[row] == who) & (ops.stream[row] == stream)
        )
        links = links[np.argsort(launches.begin[row[links]], kind="stable")]
        place = np.searchsorted(launches.begin[row[links]], calls.start[waits[mine]], "left")
        some = place < len(links)
        sources.append(source[mine][some])
        targets.append(links[place[some]])
        made.append(waits[mine][some])
    src, dst, call = (np.concatenate(found) for found in (sources, targets, made))
    kept = (queues.of_op[src] != queues.of_op[row[dst]]) & ~queues.beside[src]
    src, dst, call = src[kept], dst[kept], call[kept]
    return Crossings.make(src, dst, np.zeros(len(src), np.int64), call=call)


def settle(
    found: Crossings,
    start: Int,
    end: Int,
    row: Int,
    free: Int,
    ready: Int,
    returned: Int,
    usual_gap: int,
) -> Crossings:
    """Say which of the recorded waits decided, and how long after them their links began.

    free, ready, returned: of each link, when the link before it had ended, when its launch would
    usually have let it begin, and when that call returned.
    """
    source_end, target = end[found.source], found.target
    begun = start[row[target]]
    since = np.maximum(begun - source_end, 0)
    latest = np.full(len(row), NEVER, np.int64)
    np.maximum.at(latest, target, source_end)
    bound = (
        (source_end == latest[target])
        & (source_end > free[target])
        & (
            (ready[target] <= source_end + usual_gap)
            | ((returned[target] <= source_end) & (since <= usual_gap))
        )
    )
    return Crossings(
        found.source,
        target,
        np.where(bound, since, np.minimum(since, usual_gap)),
        found.from_start,
        found.inferred,
        bound,
        found.call,
    )


def inferred(
    timeline: Timeline,
    launches: Launches,
    queues: Queues,
    threads: Int,
    row: Int,
    candidates: Mask,
    ready: Int,
    delay: Int,
    start: Int,
    end: Int,
) -> Crossings:
    """Waits that must have been: links that began late, right after work of another queue.

    ready: when each link could have begun by all that is known. delay: how long after that, and a
    usual gap, it did.
    """
    evident = _after_unknown_wait(timeline, launches, queues, threads, row, candidates)
    late = candidates & (delay > np.where(evident, EVIDENT_NS, NEAR_NS))
    target = np.flatnonzero(late)
    source = np.full(len(target), -1, np.int64)
    ops, owner = timeline.device_ops, launches.op_owner
    place = np.stack([ops.rank[row[target]], ops.device[row[target]], owner[row[target]]], 1)
    for rank, device, who in np.unique(place, axis=0).tolist():
        mine = np.flatnonzero((place == (rank, device, who)).all(axis=1))
        near = np.flatnonzero(
            (ops.rank == rank) & (ops.device == device) & (owner == who) & ~queues.beside
        )
        near = near[np.argsort(end[near], kind="stable")]
        op = row[target[mine]]
        at = np.searchsorted(end[near], start[op], "right") - 1
        for _ in range(_TRIES):
            other = near[np.maximum(at, 0)]
            wrong = (queues.of_op[other] == queues.of_op[op]) | (
                launches.begin[other] >= launches.begin[op]
            )
            at = np.where((at >= 0) & wrong, at - 1, at)
        other = near[np.maximum(at, 0)]
        right = (
            (at >= 0)
            & (queues.of_op[other] != queues.of_op[op])
            & (launches.begin[other] < launches.begin[op])
            & (start[op] - end[other] <= NEAR_NS)
            & (end[other] > ready[target[mine]])
        )
        source[mine] = np.where(right, other, -1)
    known = source >= 0
    source, target = source[known], target[known]
    lag = start[row[target]] - end[source]
    return Crossings.make(source, target, lag, inferred=True, bound=True)


def _after_unknown_wait(
    timeline: Timeline,
    launches: Launches,
    queues: Queues,
    threads: Int,
    row: Int,
    candidates: Mask,
) -> Mask:
    """Links launched after a cudaStreamWaitEvent of which no more is known than that it was.

    That is, one between the launches of the link before and of this one, on the same thread.
    """
    calls = timeline.host_calls
    result = np.zeros(len(row), np.bool_)
    is_wait = calls.name.where(api.is_stream_wait) & (calls.event_record < 0)
    if not is_wait.any():
        return result
    so_far = np.append(0, np.cumsum(is_wait))
    target = np.flatnonzero(candidates & (queues.before[row] >= 0))
    call = launches.of_op[row[target]]
    last = launches.of_op[queues.before[row[target]]]
    same = (last >= 0) & (last < call)
    same &= threads[np.maximum(last, 0)] == threads[call]
    result[target[same]] = so_far[call[same]] > so_far[last[same]]
    return result


def in_graphs(
    timeline: Timeline,
    launches: Launches,
    queues: Queues,
    row: Int,
    inner: Mask,
    start: Int,
    end: Int,
) -> Crossings:
    """Branches of replays on several streams: a node follows what ended last before it began.

    A node before which nothing of its replay had ended began some time after the first one.
    """
    none = np.zeros(0, np.int64)
    empty = Crossings.make(none, none, none)
    nodes = np.flatnonzero(launches.graph & ~queues.beside)
    launch = launches.of_op[nodes]
    order = np.lexsort((queues.of_op[nodes], launch))
    first, _ = runs(launch[order], queues.of_op[nodes[order]])
    branched, streams = np.unique(launch[order][first], return_counts=True)
    branched = branched[streams > 1]
    nodes = nodes[np.isin(launch, branched)]
    if not len(nodes):
        return empty
    replay = np.searchsorted(branched, launches.of_op[nodes])
    head = np.full(len(branched), np.iinfo(np.int64).max)
    np.minimum.at(head, replay, start[nodes])
    span = int((end[nodes] - head[replay]).max()) + 1
    key = replay * span + end[nodes] - head[replay]
    by_end = np.argsort(key, kind="stable")
    key, ended = key[by_end], nodes[by_end]
    by_start = nodes[np.lexsort((nodes, start[nodes], replay))]
    lead = by_start[np.unique(launches.of_op[by_start], return_index=True)[1]]

    target = np.flatnonzero(inner & np.isin(launches.of_op[row], branched))
    op = row[target]
    mine = np.searchsorted(branched, launches.of_op[op])
    at = np.searchsorted(key, mine * span + start[op] - head[mine], "right") - 1
    for _ in range(_TRIES):  # past itself and what took no time beside it
        other = ended[np.maximum(at, 0)]
        at = np.where((at >= 0) & (end[other] == end[op]) & (other >= op), at - 1, at)
    other = ended[np.maximum(at, 0)]
    after = (at >= 0) & (launches.of_op[other] == launches.of_op[op])
    after &= (end[other] < end[op]) | (other < op)
    before = queues.before[op]
    own = (before >= 0) & (launches.of_op[np.maximum(before, 0)] == launches.of_op[op])
    own &= end[np.maximum(before, 0)] >= end[other]
    cross = after & ~own & (queues.of_op[other] != queues.of_op[op])
    source = np.where(cross, other, lead[mine])
    kept = cross | (~after & (queues.of_op[source] != queues.of_op[op]))
    source, target, cross = source[kept], target[kept], cross[kept]
    lag = start[row[target]] - np.where(cross, end[source], start[source])
    return Crossings.make(source, target, lag, from_start=~cross, bound=True)
