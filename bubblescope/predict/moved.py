"""A replay as a Timeline: every operation, call and range where it would have been."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph, Times
from bubblescope.timeline import Ranges, Steps, Timeline
from bubblescope.timeline.intervals import runs
from bubblescope.timeline.tables import Int

_Rows = TypeVar("_Rows", Ranges, Steps)


class HostMap:
    """Where a moment of a thread comes to lie. Order is kept, so what nests still does."""

    def __init__(self, graph: Graph, times: Times) -> None:
        """From a graph and one replay of it."""
        self._graph, self._times = graph, times
        spans = graph.spans
        first, length = runs(spans.thread)
        self._slices = {
            int(spans.thread[f]): slice(f, f + n)
            for f, n in zip(first.tolist(), length.tolist(), strict=True)
        }

    def __call__(self, thread: int, at: Int) -> Int:
        """New host times of the moments `at` of one thread, ns."""
        spans, times = self._graph.spans, self._times
        inside = self._slices[thread]
        begin, end = spans.begin[inside], spans.end[inside]
        new_begin, new_end = times.begin[inside], times.back[inside]
        number = np.searchsorted(begin, at, "right") - 1
        known = np.maximum(number, 0)
        in_call = at < end[known]
        ahead = np.append(new_begin[1:], np.iinfo(np.int64).max)[known]
        moved = np.where(
            in_call,
            np.minimum(new_begin[known] + (at - begin[known]), new_end[known]),
            np.minimum(new_end[known] + (at - end[known]), ahead),
        )
        return np.where(number < 0, at - begin[0] + new_begin[0], moved)


def moved(graph: Graph, times: Times, edit: Edit) -> Timeline:
    """The replayed Timeline; what the edit took out is not in it."""
    timeline = graph.timeline
    where = HostMap(graph, times)
    ops = replace(timeline.device_ops, start=times.start, end=times.end).take(~edit.gone)
    calls = timeline.host_calls
    start, end = calls.start.copy(), calls.end.copy()
    for thread in np.unique(graph.threads.of_call).tolist():
        rows = graph.threads.calls(thread)
        start[rows], end[rows] = where(thread, calls.start[rows]), where(thread, calls.end[rows])
    start, end = _spans_exactly(graph, times, start, end)
    calls = replace(calls, start=start, end=np.maximum(start, end)).take(~edit.gone_calls)
    return Timeline.of(
        timeline.meta,
        device_ops=ops,
        host_calls=calls,
        ranges=_on_threads(graph, where, timeline.ranges),
        frames=timeline.frames,
        steps=_on_threads(graph, where, timeline.steps),
        health=timeline.health,
    )


def _spans_exactly(graph: Graph, times: Times, start: Int, end: Int) -> tuple[Int, Int]:
    """Calls that make up spans of their own, at those spans' times: also those of no length."""
    spans = graph.spans
    calls = graph.timeline.host_calls
    start[spans.call] = times.begin
    whole = calls.end[spans.call] == spans.end
    end[spans.call[whole]] = times.back[whole]
    return start, end


def _on_threads(graph: Graph, where: HostMap, table: _Rows) -> _Rows:
    """A table of host times moved with its threads.

    Rows of a thread that made no call, or of none, move with the thread of their rank that made
    most.
    """
    start, end = table.start.copy(), table.end.copy()
    threads = graph.threads
    counts = np.bincount(threads.of_call)
    if not len(counts):
        return table
    keys = [table.rank, table.process]
    if isinstance(table, Ranges):
        keys.append(table.thread)
    first, length = runs(*keys)
    for f, n in zip(first.tolist(), length.tolist(), strict=True):  # threads
        rank, process = int(table.rank[f]), int(table.process[f])
        known = None
        if isinstance(table, Ranges):
            known = threads.id_of(rank, process, int(table.thread[f]))
        if known is None:
            same = [t for t in range(len(counts)) if threads.process(t) == (rank, process)]
            same = same or [t for t in range(len(counts)) if threads.rank(t) == rank]
            if not same:
                continue
            known = max(same, key=lambda t: int(counts[t]))
        rows = slice(f, f + n)
        start[rows], end[rows] = where(known, start[rows]), where(known, end[rows])
    return replace(table, start=start, end=end)
