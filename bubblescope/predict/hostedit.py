"""Edits of the host's side that several what-ifs share: calls that go, time that goes."""

from __future__ import annotations

import numpy as np

from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph
from bubblescope.timeline import api
from bubblescope.timeline.intervals import Mask, covered_before
from bubblescope.timeline.tables import Int


def important(graph: Graph) -> Mask:
    """Calls that launch, copy or wait: an op that holds one has something of its own to do."""
    calls = graph.timeline.host_calls
    chosen = calls.name.where(
        lambda name: api.is_kernel_launch(name) or api.is_graph_launch(name) or api.is_copy(name)
    )
    of_op = graph.launches.of_op
    chosen[of_op[of_op >= 0]] = True
    chosen[graph.reads.first] = chosen[graph.reads.last] = True
    return chosen


def remove_calls(graph: Graph, edit: Edit, calls: Int) -> None:
    """Take these calls (rows of `host_calls`) out, what they launch, and the ops that hold no more.

    An op is a framework operator around the call; it goes if it launches, copies and waits for
    nothing else.
    """
    if not len(calls):
        return
    removed = np.zeros(len(graph.timeline.host_calls), np.bool_)
    removed[calls] = True
    for thread in np.unique(graph.threads.of_call[calls]).tolist():
        start, end = _emptied_ops(graph, removed, thread)
        inside = graph.threads.calls(thread)
        begins = graph.timeline.host_calls.start[inside]
        low, high = np.searchsorted(begins, start, "left"), np.searchsorted(begins, end, "left")
        depth = np.zeros(len(begins) + 1, np.int64)
        np.add.at(depth, low, 1)
        np.add.at(depth, high, -1)
        removed[inside] |= np.cumsum(depth[:-1]) > 0
        cut_host(graph, edit, thread, start, end)
    spans, waits = graph.spans, graph.waits
    whole = removed[spans.call]
    removed |= whole[spans.of_call]
    edit.gone_calls[removed] = True
    edit.call[whole] = 0
    unread = whole[waits.span]
    edit.own[unread] = 0
    edit.waits[unread] = False
    of_op = graph.launches.of_op
    remove_ops(graph, edit, (of_op >= 0) & removed[of_op])
    causes, links = graph.causes, graph.queues.order
    edit.launches[removed[of_op[links[graph.launched]]]] = False
    # A stream that was made to wait still waits: what comes next in it does. Branches of a graph
    # that is gone do not wait for each other.
    crossings = causes.crossings
    target, source = of_op[links[crossings.target]], of_op[crossings.source]
    inside = (target >= 0) & (target == source) & removed[target]
    edit.crosses[inside | ((crossings.call >= 0) & removed[crossings.call])] = False


def remove_ops(graph: Graph, edit: Edit, gone: Mask) -> None:
    """Let these operations (a mask over `device_ops`) take no time and be gone.

    What they waited for is waited for by what comes next in their queue. Where the first node of a
    replay goes, the next one that is left begins as that one would have.
    """
    edit.gone[gone] = True
    edit.run[gone] = 0
    order = graph.queues.order
    links = edit.gone[order]
    edit.tail[links] = 0
    # Links of one replay in one queue are a run; any other link is a run of its own.
    replay = np.where(graph.launches.graph[order], graph.launches.of_op[order], -1)
    opens = np.append(True, (replay[1:] != replay[:-1]) | (replay[1:] < 0))[: len(order)]
    opens |= graph.leads_queue
    run, first = np.cumsum(opens) - 1, np.flatnonzero(opens)
    left = np.append(0, np.cumsum(~links))
    inherited = links[first] & (np.diff(left[np.append(first, len(order))]) > 0)
    heads = np.zeros(len(order), np.bool_)
    heads[first[inherited]] = True
    edit.between[links & ~heads] = 0
    edit.crossing[(links & ~heads)[graph.causes.crossings.target]] = 0
    heirs = ~links & inherited[run] & (left[:-1] == left[first][run])
    edit.between[heirs] = 0


def cut_host(graph: Graph, edit: Edit, thread: int, start: Int, end: Int) -> None:
    """Take the time in [start, end) between the calls of one thread out; intervals may overlap."""
    if not len(start):
        return
    spans = graph.spans
    rows = np.flatnonzero((spans.thread == thread) & ~spans.leads)
    if not len(rows):
        return
    start, end = _union(start, end)
    before = spans.begin[rows] - spans.gap[rows]
    covered = covered_before(start, end, spans.begin[rows]) - covered_before(start, end, before)
    edit.gap[rows] = np.maximum(edit.gap[rows] - covered, 0)


def cut_calls(graph: Graph, edit: Edit, thread: int, start: Int, end: Int) -> None:
    """Take the time in [start, end) inside calls of one thread out, but for waiting.

    What a call launches begins as much earlier as lies before it.
    """
    spans = graph.spans
    rows = np.flatnonzero(spans.thread == thread)
    if not len(start) or not len(rows):
        return
    start, end = _union(start, end)
    until = covered_before(start, end, spans.end[rows])
    from_ = covered_before(start, end, spans.begin[rows])
    waits = np.zeros(len(spans.begin), np.bool_)
    waits[graph.waits.span] = True
    covered = np.where(waits[rows], 0, until - from_)
    edit.call[rows] = np.maximum(edit.call[rows] - covered, 0)
    launched = graph.launched
    span = graph.causes.launch[launched]
    mine = np.flatnonzero(spans.thread[span] == thread)
    op = graph.queues.order[launched[mine]]
    place = np.searchsorted(rows, span[mine])
    before = covered_before(start, end, np.minimum(graph.start[op], spans.end[span[mine]]))
    saved = np.maximum(before - from_[place], 0)
    edit.latency[mine] = np.maximum(edit.latency[mine] - saved, 0)


def _union(start: Int, end: Int) -> tuple[Int, Int]:
    """Intervals that do not overlap and cover the same."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.append(True, start[1:] > reach[:-1])
    first = np.flatnonzero(opens)
    return start[first], reach[np.append(first[1:], len(start)) - 1]


def _emptied_ops(graph: Graph, removed: Mask, thread: int) -> tuple[Int, Int]:
    """Times of the framework ops of a thread in which everything of importance is removed."""
    ranges = graph.timeline.ranges
    rows = graph.threads.ranges(thread)
    ops = np.flatnonzero(ranges.kind.take(rows).where(lambda kind: kind == "op")) + rows.start
    inside = graph.threads.calls(thread)
    begins = graph.timeline.host_calls.start[inside]
    matters = important(graph)[inside]
    every = np.append(0, np.cumsum(matters))
    going = np.append(0, np.cumsum(matters & removed[inside]))
    low = np.searchsorted(begins, ranges.start[ops], "left")
    high = np.searchsorted(begins, ranges.end[ops], "left")
    gone = going[high] - going[low]
    emptied = ops[(gone > 0) & (gone == every[high] - every[low])]
    return ranges.start[emptied], ranges.end[emptied]
