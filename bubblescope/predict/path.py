"""The critical path of a replay: what the steps would have to shorten to become shorter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph, Times
from bubblescope.predict.model import PathRow
from bubblescope.timeline.intervals import IntervalIndex, Mask
from bubblescope.timeline.tables import Int


@dataclass(frozen=True, slots=True, eq=False)
class _Path:
    """Nodes of the path. entered: by the edge of that number, -1: along the chain."""

    node: Int
    entered: Int


def critical_path(
    graph: Graph, edit: Edit, times: Times, window: tuple[int, int], steps: int
) -> tuple[PathRow, ...]:
    """The path that ends with the last operation in the window, by kind and name; longest first.

    Args:
        graph: what was replayed.
        edit: what was changed.
        times: the replay.
        window: host-clock times that the path is followed between.
        steps: how many steps that is; figures are means over them.
    """
    run, tail = graph.durations(edit)
    weight, _, lag = graph.figures(edit, run, tail)
    path = _follow(graph, times, weight, lag, window)
    if path is None:
        return ()
    shares = _Shares(graph)
    _device(graph, edit, path, tail, shares)
    _host(graph, edit, path, shares)
    return shares.rows(max(steps, 1))


def _follow(
    graph: Graph, times: Times, weight: Int, lag: Int, window: tuple[int, int]
) -> _Path | None:
    """Back from the last operation that ends in the window, along whatever decided each node."""
    node = times.node
    first_link = graph.host_nodes
    ends = node[first_link:]
    inside = np.flatnonzero((ends <= window[1]) & (ends > window[0]))
    if not len(inside):
        return None
    at = first_link + int(inside[np.argmax(ends[inside])])
    source, target = graph.chains.source, graph.chains.target
    tight = np.flatnonzero(node[source] + lag == node[target])
    by_edge = np.full(len(node), -1, np.int64)
    by_edge[target[tight]] = tight
    chained = np.zeros(len(node), np.bool_)
    chained[1:] = node[:-1] + weight[1:] == node[1:]
    chained[graph.chains.first_nodes] = False
    # Where a stretch along the chain ends: at the last node before that only an edge explains.
    stops = np.where(chained, -1, np.arange(len(node)))
    np.maximum.accumulate(stops, out=stops)
    nodes: list[Int] = []
    entered: list[Int] = []
    while True:  # once for each change of chain
        begin = int(stops[at])
        stretch = np.arange(begin, at + 1)
        late = node[stretch] > window[0]
        edge = int(by_edge[begin])
        how = np.full(len(stretch), -1, np.int64)
        how[0] = edge if edge >= 0 else _NOTHING
        nodes.append(stretch[late])
        entered.append(how[late])
        if edge < 0 or not late.all() or int(source[edge]) == at:
            break
        at = int(source[edge])
        if node[at] <= window[0]:
            break
    return _Path(np.concatenate(nodes), np.concatenate(entered))


_NOTHING = -2
"""A node that nothing in the recording decided."""


class _Shares:
    """Adds up times by kind and name."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._total: dict[tuple[str, str], int] = {}

    def add(
        self, kind: str, codes: npt.NDArray[np.signedinteger[Any]], values: tuple[str, ...], ns: Int
    ) -> None:
        """Ns of each row under the name that its code says."""
        total = np.zeros(len(values) + 1, np.int64)
        np.add.at(total, codes, ns)
        for code in np.flatnonzero(total).tolist():
            key = kind, values[code] if 0 <= code < len(values) else ""
            self._total[key] = self._total.get(key, 0) + int(total[code])

    def rows(self, steps: int) -> tuple[PathRow, ...]:
        """The rows, longest first; what is under a nanosecond a step is left out."""
        made = [PathRow(kind, name, ns // steps) for (kind, name), ns in self._total.items()]
        made = [row for row in made if row.ns_per_step]
        return tuple(sorted(made, key=lambda row: (-row.ns_per_step, row.kind, row.name)))


def _device(graph: Graph, edit: Edit, path: _Path, tail: Int, shares: _Shares) -> None:
    """The part of the path on device queues, with the launches and waits that lead there."""
    mine = path.node >= graph.host_nodes
    link, entered = path.node[mine] - graph.host_nodes, path.entered[mine]
    order, ops = graph.queues.order, graph.timeline.device_ops
    overlaps = graph.queues.overlaps[order[link]]
    ran = np.where(overlaps, tail[link], edit.run[order[link]])
    lead = np.where((entered == -1) & ~overlaps, edit.between[link], 0)
    ran = ran + np.minimum(lead, 0)  # what lies over the one before is not on the path
    shares.add("device operation", ops.name.codes[order[link]], ops.name.values, ran)
    inner = graph.launches.graph[order[link]] & (graph.causes.launch[link] < 0)
    between = np.maximum(lead, 0)
    for kind, chosen in (("graph gap", inner), ("device gap", ~inner)):
        nameless = np.zeros(int(chosen.sum()), np.int64)
        shares.add(kind, nameless, (), between[chosen])

    launches = (entered >= 0) & (entered < graph.is_read_edge.start)
    edge = entered[launches]
    calls = graph.timeline.host_calls
    call = graph.launches.of_op[order[graph.launched[edge]]]
    shares.add("launch", calls.name.codes[call], calls.name.values, edit.latency[edge])
    crossed = entered[entered >= graph.is_crossing.start] - graph.is_crossing.start
    target = order[graph.causes.crossings.target[crossed]]
    shares.add("stream wait", ops.name.codes[target], ops.name.values, edit.crossing[crossed])


def _host(graph: Graph, edit: Edit, path: _Path, shares: _Shares) -> None:
    """The part of the path on host threads."""
    spans, calls = graph.spans, graph.timeline.host_calls
    is_begin = np.full(graph.host_nodes, -1, np.int64)
    is_begin[graph.begins] = np.arange(len(graph.begins))
    wait = np.full(graph.host_nodes, -1, np.int64)
    wait[graph.returns[graph.waits.span]] = np.arange(len(graph.waits.span))
    mine = path.node < graph.host_nodes
    node, entered = path.node[mine], path.entered[mine]
    span = is_begin[node]
    along = (span >= 0) & (entered == -1)
    begun = span[along]
    name, codes = _work(graph, begun)
    shares.add("host work", codes, name, edit.gap[begun])
    waiting = np.zeros(len(spans.begin), np.bool_)
    waiting[graph.waits.span] = True
    last = begun - 1  # a node reached along its chain is not the first of its thread
    last = last[~waiting[last]]
    shares.add("host call", calls.name.codes[spans.call[last]], calls.name.values, edit.call[last])
    read = wait[node]
    own = read[(read >= 0) & (entered == -1)]
    call = spans.call[graph.waits.span[own]]
    shares.add("host call", calls.name.codes[call], calls.name.values, edit.own[own])
    edge = entered[entered >= 0]
    first = graph.is_also.start
    others = np.append(graph.waits.also, 0)[np.maximum(edge - first, 0)]
    back = np.where(edge < first, edge - graph.is_read_edge.start, others)
    call = spans.call[graph.waits.span[back]]
    shares.add("read return", calls.name.codes[call], calls.name.values, edit.back[back])


def _work(graph: Graph, span: Int) -> tuple[tuple[str, ...], Int]:
    """What the thread was doing before each span: the innermost range when the last one ended."""
    ranges, spans = graph.timeline.ranges, graph.spans
    names = ranges.name.values
    codes = np.full(len(span), len(names), np.int64)
    overhead: Mask = ranges.kind.where(lambda kind: kind == "overhead")
    at = spans.begin[span] - np.maximum(spans.gap[span], 0)
    for thread in np.unique(spans.thread[span]).tolist():
        rows = graph.threads.ranges(thread)
        mine = spans.thread[span] == thread
        inside = np.flatnonzero(~overhead[rows]) + rows.start
        index = IntervalIndex(ranges.start[inside], ranges.end[inside])
        found = index.innermost(at[mine])
        here = np.full(len(found), len(names), np.int64)
        here[found >= 0] = ranges.name.codes[inside[found[found >= 0]]]
        codes[mine] = here
    return names, codes
