"""The dependency graph of a Timeline: built once, edited and replayed often.

Nodes are the beginnings of outermost calls, the returns of those that wait, and the ends of device
operations. Host threads and device queues are chains of them; launches, reads, events and branches
of graphs are the edges between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose import launches as find_launches
from bubblescope.diagnose import reads as find_reads
from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.reads import Reads
from bubblescope.diagnose.work import QueuedWork
from bubblescope.predict import causes as find_causes
from bubblescope.predict import host
from bubblescope.predict.causes import Causes
from bubblescope.predict.chains import NEVER_BEFORE, Chains
from bubblescope.predict.edit import Edit
from bubblescope.predict.host import Spans, Waits
from bubblescope.predict.queues import Queues, queues
from bubblescope.timeline import Timeline
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """A replay: new times of everything, ns. start, end: of operations, on the device's clock.

    begin, back: of spans, on the host's. node: of the graph's nodes.
    """

    start: Int
    end: Int
    begin: Int
    back: Int
    node: Int


class Graph:
    """What depends on what in a recording.

    start, end, op_ns: of the operations, on the host's clock; shift: what was added for that.
    spans, waits, queues, causes: the rows that nodes and edges are made of.
    begins, returns, links: the node of each span's beginning and return (-1: it does not wait), and
    of each link. host_nodes: how many are of the host, the first ones.
    launched: the links that have a launch edge. Edges are in the order: launches, one for each of
    these; reads (is_read_edge), one for each wait; crossings (is_crossing); the other
    streams of waits for all (is_also).
    """

    def __init__(self, timeline: Timeline, shift: int = 0) -> None:
        """Build it. shift: what brings device times to the host's clock, ns."""
        ops = timeline.device_ops
        self.timeline, self.shift = timeline, shift
        self.start, self.end = ops.start + shift, ops.end + shift
        self.launches: Launches = find_launches.join(timeline)
        work = QueuedWork(timeline, self.launches)
        self.threads = Threads(timeline)
        self.reads: Reads = find_reads.find(timeline, self.launches, work, self.threads)
        self.spans: Spans = host.spans(timeline, self.threads, self.reads)
        self.waits: Waits = host.waits(
            timeline, self.launches, work, self.spans, self.reads, self.end
        )
        self.queues: Queues = queues(timeline, self.launches, self.start, self.end)
        self.causes: Causes = find_causes.find(
            timeline,
            self.launches,
            work,
            self.spans,
            self.queues,
            self.threads.of_call,
            self.start,
            self.end,
        )
        self._number()
        self._connect()

    def _number(self) -> None:
        """Number the nodes: threads first, then queues, each in its order."""
        spans, waits = self.spans, self.waits
        waiting = np.zeros(len(spans.begin), np.int64)
        waiting[waits.span] = 1
        self.begins: Int = np.arange(len(spans.begin)) + np.cumsum(waiting) - waiting
        self.returns: Int = np.where(waiting > 0, self.begins + 1, -1)
        self.host_nodes = len(spans.begin) + int(waiting.sum())
        self.links: Int = self.host_nodes + np.arange(len(self.queues.order))
        of_thread = np.bincount(spans.thread)
        of_thread += np.bincount(spans.thread[waits.span], minlength=len(of_thread))
        self._lengths = np.concatenate([of_thread, self.queues.length])

    def _connect(self) -> None:
        """Make the edges, and what their lags are made of."""
        causes, waits, order = self.causes, self.waits, self.queues.order
        self.launched: Int = np.flatnonzero(causes.launch >= 0)
        awaited = self.queues.place[waits.op]
        crossings = causes.crossings
        crossed = self.queues.place[crossings.source]
        source = np.concatenate(
            [
                self.begins[causes.launch[self.launched]],
                self.links[awaited],
                self.links[crossed],
                self.links[self.queues.place[waits.also_op]],
            ]
        )
        target = np.concatenate(
            [
                self.links[self.launched],
                self.returns[waits.span],
                self.links[crossings.target],
                self.returns[waits.span[waits.also]],
            ]
        )
        self.chains = Chains(self._lengths, source, target)
        self.is_read_edge = slice(len(self.launched), len(self.launched) + len(waits.span))
        self.is_crossing = slice(self.is_read_edge.stop, len(source) - len(waits.also))
        self.is_also = slice(self.is_crossing.stop, len(source))
        self.op_ns: Int = self.end - self.start
        before = self.queues.before[order]
        overlaps = self.queues.overlaps[order]
        self.tail: Int = np.where(overlaps, self.end[order] - self.end[before], self.op_ns[order])
        """Of each link, what of it lies after the end of the link before."""
        self.leads_queue = before < 0
        held = np.flatnonzero(self.queues.beside)
        self._beside = held
        self._carrier = order[self.queues.place[held]]

    def edit(self) -> Edit:
        """The graph's figures as recorded, to be changed and replayed."""
        causes, waits, crossings = self.causes, self.waits, self.causes.crossings
        spans = self.spans
        return Edit(
            gap=np.maximum(spans.gap, 0),
            call=spans.end - spans.begin,
            own=waits.own.copy(),
            back=waits.back.copy(),
            waits=np.ones(len(waits.span), np.bool_),
            run=self.op_ns.copy(),
            tail=self.tail.copy(),
            between=causes.gap.copy(),
            latency=causes.latency[self.launched].copy(),
            launches=np.ones(len(self.launched), np.bool_),
            crossing=crossings.lag.copy(),
            crosses=np.ones(len(crossings.lag), np.bool_),
            gone=np.zeros(len(self.op_ns), np.bool_),
            gone_calls=np.zeros(len(self.timeline.host_calls), np.bool_),
        )

    def replay(self, edit: Edit | None = None) -> Times:
        """The times that follow from the edited graph; from the graph itself, without an edit."""
        if edit is None:
            edit = self.edit()
        run, tail = self.durations(edit)
        node = self.chains.solve(*self.figures(edit, run, tail))
        waits = self.waits
        begin = node[self.begins]
        back = begin + edit.call
        back[waits.span] = node[self.returns[waits.span]]
        start, end = self._operations(edit, node, tail, begin)
        return Times(start - self.shift, end - self.shift, begin, back, node)

    def figures(self, edit: Edit, run: Int, tail: Int) -> tuple[Int, Int, Int]:
        """Weights, lower bounds and lags of the nodes and edges, for `Chains.solve`.

        run: of each link, with what runs beside it; tail: of each link.
        """
        spans, waits, queues = self.spans, self.waits, self.queues
        weight = np.zeros(self.chains.nodes, np.int64)
        floor = np.full(self.chains.nodes, NEVER_BEFORE, np.int64)
        busy = edit.call.copy()
        busy[waits.span] = 0
        weight[self.begins] = edit.gap + np.append(0, busy[:-1])[: len(busy)]
        weight[self.returns[waits.span]] = edit.own
        floor[self.begins[spans.leads]] = spans.begin[spans.leads]
        order = queues.order
        overlaps = queues.overlaps[order]
        alone = np.where(overlaps, tail, run)
        weight[self.links] = np.where(overlaps, 0, edit.between) + alone
        launched = np.zeros(len(order), np.bool_)
        launched[self.launched] = edit.launches
        crossings = self.causes.crossings
        launched[crossings.target[edit.crosses]] = True
        # What nothing else dates begins when it was recorded to.
        dated = np.flatnonzero(self.leads_queue & ~launched)
        floor[self.links[dated]] = self.start[order[dated]] + alone[dated]

        source_run = np.where(crossings.from_start, edit.run[crossings.source], 0)
        lag = np.concatenate(
            [
                np.where(edit.launches, edit.latency + alone[self.launched], NEVER_BEFORE),
                np.where(edit.waits, edit.back + self._aside(edit, waits.op), NEVER_BEFORE),
                np.where(
                    edit.crosses,
                    edit.crossing - source_run + alone[crossings.target],
                    NEVER_BEFORE,
                ),
                np.where(
                    edit.waits[waits.also],
                    edit.back[waits.also] + self._aside(edit, waits.also_op),
                    NEVER_BEFORE,
                ),
            ]
        )
        return weight, floor, lag

    def durations(self, edit: Edit) -> tuple[Int, Int]:
        """Of each link how long it runs, with what runs beside it, and how long after the last."""
        run = edit.run[self.queues.order]
        if len(self._beside):
            held = edit.run[self._beside]
            until = self.start[self._beside] - self.start[self._carrier] + held
            until = np.where(edit.gone[self._beside], 0, until)
            np.maximum.at(run, self.queues.place[self._beside], until)
        longer = run - edit.run[self.queues.order]
        return run, edit.tail + longer

    def _aside(self, edit: Edit, op: Int) -> Int:
        """From the end of an operation's link to its own end: 0 for the link itself."""
        carrier = self.queues.order[self.queues.place[op]]
        own = self.start[op] - self.start[carrier] + edit.run[op]
        return np.where(carrier == op, 0, own - edit.run[carrier])

    def _operations(self, edit: Edit, node: Int, tail: Int, begin: Int) -> tuple[Int, Int]:
        """Start and end of every operation, on the host's clock."""
        queues = self.queues
        order = queues.order
        end = np.empty(len(self.start), np.int64)
        run = self.durations(edit)[0]
        end[order] = node[self.links] - (run - edit.run[order])
        start = end - edit.run
        over = np.flatnonzero(queues.overlaps[order])
        if len(over):
            start[order[over]] = self._overlapping(edit, node, tail, begin, over)
        held, carrier = self._beside, self._carrier
        start[held] = start[carrier] + self.start[held] - self.start[carrier]
        end[held] = start[held] + edit.run[held]
        return start, end

    def _overlapping(self, edit: Edit, node: Int, tail: Int, begin: Int, over: Int) -> Int:
        """Starts of links that begin before the one before them ends.

        Each follows the last that had ended, or its launch, whichever is later; what it does until
        the one before it has ended is waiting.
        """
        order = self.queues.order
        ended = self._ended_before(over)
        known = ended >= 0
        after = np.maximum(ended, 0)
        lag = self.start[order[over]] - self.end[order[after]]
        start = np.where(known, node[self.links[after]] + lag, NEVER_BEFORE)
        launched = np.full(len(order), NEVER_BEFORE, np.int64)
        on = edit.launches
        rows = self.launched[on]
        span = self.causes.launch[rows]
        launched[rows] = begin[span] + edit.latency[on]
        # With nothing that had ended only the launch is known to have held it up, all the time.
        alone = np.zeros(len(order), np.bool_)
        alone[over[~known]] = True
        first = alone[rows]
        recorded = self.start[order[rows[first]]] - self.spans.begin[span[first]]
        launched[rows[first]] = begin[span[first]] + recorded
        start = np.maximum(start, launched[over])
        latest = node[self.links[over]] - tail[over]
        # With nothing before it the start keeps its distance from the end.
        apart = node[self.links[over]] - edit.run[order[over]]
        return np.where(start == NEVER_BEFORE, apart, np.minimum(start, latest))

    def _ended_before(self, over: Int) -> Int:
        """The link of the same queue that ended last before each of these began; -1 for none."""
        order = self.queues.order
        queue = self.queues.of_op[order]
        result = np.full(len(over), -1, np.int64)
        first = np.append(0, np.cumsum(self.queues.length))
        which = queue[over]
        for number in np.unique(which).tolist():  # queues
            mine = which == number
            inside = slice(int(first[number]), int(first[number + 1]))
            ends = self.end[order[inside]]
            at = np.searchsorted(ends, self.start[order[over[mine]]], "right") - 1
            result[mine] = np.where(at >= 0, at + inside.start, -1)
        return result
