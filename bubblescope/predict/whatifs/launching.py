"""Launches: left out, merged, or captured into a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.model import median_ns
from bubblescope.errors import BubblescopeError
from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph
from bubblescope.predict.hostedit import cut_host, remove_calls, remove_ops
from bubblescope.predict.whatifs.base import matcher, nothing_fits, operation_names
from bubblescope.timeline import api
from bubblescope.timeline.tables import Int

GRAPH_LAUNCH_NS = 10_000
"""What a graph launch call takes where the recording shows none without its nodes."""
GRAPH_LATENCY_NS = 5_000
"""From the return of such a call to its first operation, on an empty device."""
GRAPH_GAP_NS = 1_000
"""Between two nodes of a graph, where the recording shows none."""


@dataclass(frozen=True, slots=True)
class WithoutLaunch:
    """Operations of a name are not launched: neither they nor their calls take time.

    pattern: of the operation's name. A node of a graph goes alone; its graph is still launched.
    """

    pattern: str

    @property
    def text(self) -> str:
        """As it is written."""
        return f"launch:{self.pattern}"

    def apply(self, graph: Graph, edit: Edit) -> tuple[str, ...]:
        """Take operations and calls out."""
        chosen = graph.timeline.device_ops.name.where(matcher(self.pattern))
        if not chosen.any():
            raise nothing_fits(self.text, "operation", operation_names(graph))
        remove_ops(graph, edit, chosen)
        of_op = graph.launches.of_op
        calls = len(graph.timeline.host_calls)
        left = np.bincount(of_op[(of_op >= 0) & ~edit.gone], minlength=calls)
        candidates = np.unique(of_op[chosen & (of_op >= 0)])
        remove_calls(graph, edit, candidates[left[candidates] == 0])
        return ()


@dataclass(frozen=True, slots=True)
class Merge:
    """Consecutive launches of operations of a name become one that does the work of all.

    The first call stays; the others go, and so do the gaps between the operations. A read between
    two calls ends the row: the host did not go on before it had what the first one made.
    """

    pattern: str

    @property
    def text(self) -> str:
        """As it is written."""
        return f"merge:{self.pattern}"

    def apply(self, graph: Graph, edit: Edit) -> tuple[str, ...]:
        """Take all but the first call of each run out, and leave the work."""
        chosen = graph.timeline.device_ops.name.where(matcher(self.pattern))
        queues, of_op = graph.queues, graph.launches.of_op
        last = queues.before[queues.order]
        links = np.flatnonzero(chosen[queues.order] & (last >= 0) & chosen[np.maximum(last, 0)])
        reads = np.zeros(len(graph.timeline.host_calls) + 1, np.int64)
        reads[graph.reads.last] = 1
        so_far = np.cumsum(reads)
        links = links[so_far[of_op[queues.order[links]]] == so_far[of_op[last[links]]]]
        if not len(links):
            raise nothing_fits(self.text, "run of launches", operation_names(graph))
        edit.between[links] = 0
        calls = of_op[queues.order[links]]
        first = of_op[last[links]]
        # A call goes only if the run did not begin with it: a graph's nodes share theirs.
        join_launches(graph, edit, np.unique(calls[(calls >= 0) & (calls != first)]))
        return ()


@dataclass(frozen=True, slots=True)
class Capture:
    """What is launched eagerly inside each range of a name is captured and launched as one graph.

    The host does nothing in the range but one graph launch, at its beginning.
    """

    pattern: str

    @property
    def text(self) -> str:
        """As it is written."""
        return f"capture:{self.pattern}"

    def apply(self, graph: Graph, edit: Edit) -> tuple[str, ...]:
        """Replace the launches and the time between them.

        Raises:
            BubblescopeError: no such range, none with launches, or one with a blocking read.
        """
        ranges, spans = graph.timeline.ranges, graph.spans
        found = np.flatnonzero(ranges.name.where(matcher(self.pattern)))
        annotations = ranges.name.take(ranges.kind.where(lambda k: k == "annotation"))
        known = [annotations.values[c] for c in np.unique(annotations.codes).tolist()]
        if not len(found):
            raise nothing_fits(self.text, "range", known)
        cost, latency, gap, assumed = _graph_figures(graph)
        captured = 0
        for thread in np.unique(spans.thread).tolist():
            rows = graph.threads.ranges(thread)
            mine = found[(found >= rows.start) & (found < rows.stop)]
            if len(mine):
                start, end = _outermost(ranges.start[mine], ranges.end[mine])
                captured += self._capture(graph, edit, thread, start, end, cost, latency, gap)
        if not captured:
            raise BubblescopeError(
                f"{self.text}: nothing is launched eagerly in these ranges; there are no launches "
                "to capture"
            )
        return assumed

    def _capture(
        self,
        graph: Graph,
        edit: Edit,
        thread: int,
        start: Int,
        end: Int,
        cost: int,
        latency: int,
        gap: int,
    ) -> int:
        """One thread's ranges; returns how many launches were captured."""
        spans, order = graph.spans, graph.queues.order
        rows = np.flatnonzero(spans.thread == thread)
        place = np.searchsorted(start, spans.begin[rows], "right") - 1
        inside = (place >= 0) & (spans.begin[rows] < end[np.maximum(place, 0)])
        rows, place = rows[inside], place[inside]
        within = np.full(len(spans.begin), -1, np.int64)
        within[rows] = place
        if (within[graph.waits.span] >= 0).any():
            raise BubblescopeError(
                f"{self.text}: a blocking read lies in the range, and no graph can hold one; take "
                "it out first (--without read:...), or name a smaller range"
            )
        launched = graph.launched
        mine = within[graph.causes.launch[launched]]
        graphs = graph.timeline.host_calls.name.where(api.is_graph_launch)
        eager = (mine >= 0) & ~graphs[graph.launches.of_op[order[launched]]]
        edges = np.flatnonzero(eager)
        if not len(edges):
            return 0
        cut_host(graph, edit, thread, start, end)
        edit.call[rows] = 0
        # The first launch of each range stands for the graph's.
        edges = edges[np.lexsort((graph.causes.launch[launched[edges]], mine[edges]))]
        leads = np.append(True, np.diff(mine[edges]) > 0)
        edit.call[graph.causes.launch[launched[edges[leads]]]] = cost
        edit.latency[edges[leads]] = latency
        edit.launches[edges[~leads]] = False
        inner = launched[edges[~leads]]
        chained = graph.queues.before[order[inner]] >= 0
        edit.between[inner[chained]] = np.minimum(edit.between[inner[chained]], gap)
        return len(edges)


def join_launches(graph: Graph, edit: Edit, calls: Int) -> None:
    """Take calls out and leave what they launch to the launch before it."""
    kept = edit.copy()
    remove_calls(graph, edit, calls)
    back = edit.gone & ~kept.gone
    edit.gone[back] = False
    edit.run[back] = kept.run[back]
    links = back[graph.queues.order]
    edit.tail[links] = kept.tail[links]


def _graph_figures(graph: Graph) -> tuple[int, int, int, tuple[str, ...]]:
    """What a graph launch call takes, from it to the first node, between nodes; what is assumed.

    As recorded where replays were recorded whole: recording every node slows the call itself.
    """
    calls, causes = graph.timeline.host_calls, graph.causes
    whole = graph.launches.by_graph & ~graph.launches.graph
    rows = np.unique(graph.launches.of_op[whole])
    cost = median_ns((calls.end - calls.start)[rows])
    links = np.flatnonzero(graph.launches.graph[graph.queues.order] & (causes.launch < 0))
    links = links[~graph.queues.overlaps[graph.queues.order[links]]]
    gap = median_ns(causes.gap[links])
    said: list[str] = []
    if cost is None:
        cost = GRAPH_LAUNCH_NS
        said.append(f"a graph launch call takes {cost // 1000} us")
    if gap is None:
        gap = GRAPH_GAP_NS
        said.append(f"nodes of a graph are {gap // 1000} us apart")
    late = causes.late & whole[graph.queues.order] & (causes.launch >= 0)
    latency = median_ns(causes.latency[late])
    if latency is None:
        latency = cost + GRAPH_LATENCY_NS
        said.append(f"its first node begins {GRAPH_LATENCY_NS // 1000} us after the call")
    return cost, latency, gap, tuple(said)


def _outermost(start: Int, end: Int) -> tuple[Int, Int]:
    """The intervals that lie in no other, of intervals that nest, ordered by start."""
    reach = np.maximum.accumulate(end)
    keep = np.append(True, start[1:] >= reach[:-1])
    return start[keep], end[keep]
