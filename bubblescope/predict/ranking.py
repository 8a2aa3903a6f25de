"""What each finding of a diagnosis would be worth, and the findings in that order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bubblescope.diagnose import sites
from bubblescope.diagnose.model import Diagnosis, Doing, Finding, Part, Pieces, median_ns
from bubblescope.errors import BubblescopeError
from bubblescope.predict import cut
from bubblescope.predict.clock import StepClock
from bubblescope.predict.cut import Excerpt
from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph
from bubblescope.predict.hostedit import cut_calls, cut_host
from bubblescope.predict.prediction import doubt, off, vanished
from bubblescope.predict.whatifs.kernels import close
from bubblescope.predict.whatifs.reading import remove_reads
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

_PARTS = {part.label: part for part in Part}


def ranked(timeline: Timeline, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with what each finding would save, and its findings in order of that.

    Findings without a prediction stand where their idle puts them; those that only a node-level
    window shows stay last.
    """
    found = [
        replace(finding, predicted_saving_ns_per_step=saving)
        for finding, saving in zip(diagnosis.findings, savings(timeline, diagnosis), strict=True)
    ]

    def weight(finding: Finding) -> tuple[bool, int, int]:
        cost = finding.exposed_idle_ns_per_step
        cost = finding.exposed_idle_ns if cost is None else cost
        saving = finding.predicted_saving_ns_per_step
        return not finding.ranked, -(cost if saving is None else saving), -cost

    return replace(diagnosis, findings=tuple(sorted(found, key=weight)))


def savings(timeline: Timeline, diagnosis: Diagnosis) -> tuple[int | None, ...]:
    """By how much the step would be shorter without each finding, ns; None: not predicted.

    A read: without it. Host gaps, host waits, allocator and launch calls: without the host time
    that the finding is about. Device and graph gaps, launch latency, stream waits: without those.
    Looked at are a few steps from the middle of the recording.
    """
    nothing = (None,) * len(diagnosis.findings)
    excerpt = cut.middle(timeline, diagnosis)
    if excerpt is None or not diagnosis.findings:
        return nothing
    graph = Graph(excerpt.timeline, diagnosis.clocks.shift)
    part = len(excerpt.ops) < len(timeline.device_ops)
    if doubt(graph, diagnosis, excerpt.steps, excerpt=part):
        return nothing
    clock = StepClock(excerpt.timeline, graph.launches, excerpt.markers, excerpt.steps)
    ops = excerpt.timeline.device_ops
    measured = median_ns(clock.lengths(ops.start, ops.end))

    def step(edit: Edit) -> int | None:
        times = graph.replay(edit)
        lengths = clock.lengths(times.start, times.end, edit.gone)
        return None if vanished(lengths) else median_ns(lengths)

    def saved(edit: Edit) -> int | None:
        left = step(edit)
        return None if left is None or replayed is None else replayed - left

    try:
        replayed = step(graph.edit())
        if off(replayed or 0, measured or 0):
            return nothing
        about = _About(graph, diagnosis, excerpt)
        made: list[int | None] = []
        for finding in diagnosis.findings:
            edit = graph.edit()
            made.append(saved(edit) if about.remove(finding, edit) else None)
    except BubblescopeError:  # waits in a circle
        return nothing
    return tuple(made)


@dataclass(frozen=True, slots=True, eq=False)
class _Bubbles:
    """The pieces of bubbles inside an excerpt, of one device.

    op: that ended each one's bubble, a row of the excerpt's `device_ops`, -1 outside it.
    """

    pieces: Pieces
    op: Int


class _About:
    """Finds what a finding is about in an excerpt, and takes it out."""

    def __init__(self, graph: Graph, diagnosis: Diagnosis, excerpt: Excerpt) -> None:
        self._graph, self._shift = graph, diagnosis.clocks.shift
        self._places = sites.places(graph.timeline, graph.reads, graph.threads)
        self._devices: list[_Bubbles] = []
        ops = excerpt.timeline.device_ops
        begin, end = int(ops.start.min()), int(ops.start.max())
        for device in diagnosis.devices:
            rows = slice(*np.searchsorted(device.pieces.start, [begin, end]).tolist())
            names = Pieces.__dataclass_fields__
            pieces = Pieces(*(getattr(device.pieces, name)[rows] for name in names))
            op = device.bubbles.op[pieces.bubble]
            place = np.minimum(np.searchsorted(excerpt.ops, op), len(excerpt.ops) - 1)
            self._devices.append(_Bubbles(pieces, np.where(excerpt.ops[place] == op, place, -1)))
        self._node_level = self._nodes() > 1
        if not graph.timeline.meta.lengthens_graphs:
            self._node_level[:] = False

    def remove(self, finding: Finding, edit: Edit) -> bool:
        """Edit the finding's cause out; False where no graph can say what that would be."""
        if finding.kind == "blocking read":
            return self._read(finding, edit)
        if finding.kind == Doing.ALLOCATOR.label:
            return self._host(edit, Part.HOST_GAP, Doing.ALLOCATOR)
        part = _PARTS.get(finding.kind)
        if part in (Part.HOST_GAP, Part.HOST_WAIT):
            return self._host(edit, part)
        if part is Part.LAUNCH_CALL:
            return self._launch_call(finding, edit)
        if part in (Part.DEVICE_GAP, Part.GRAPH_GAP):
            close(self._graph, edit, self._links(part))
            return True
        if part is Part.LAUNCH_LATENCY:
            return self._latency(edit)
        if part is Part.STREAM_WAIT:
            target = np.isin(self._graph.causes.crossings.target, self._links(part))
            edit.crosses[target] = False
            return True
        return False

    def _read(self, finding: Finding, edit: Edit) -> bool:
        rows = [
            place.rows
            for place in self._places
            if place.name == finding.call
            and place.site == finding.site
            and (finding.site is not None or place.within == finding.within)
        ]
        if not rows:
            return False
        remove_reads(self._graph, edit, np.sort(np.concatenate(rows)))
        return True

    def _host(self, edit: Edit, part: Part, doing: Doing | None = None) -> bool:
        for bubbles in self._devices:
            chosen = bubbles.pieces.part == part
            if doing is not None:
                chosen &= bubbles.pieces.doing == doing
            self._cut(edit, bubbles, chosen)
        return True

    def _launch_call(self, finding: Finding, edit: Edit) -> bool:
        calls = self._graph.timeline.host_calls
        named = calls.name.where(lambda name: name == finding.call)
        named &= self._node_level == (not finding.ranked)
        of_op = self._graph.launches.of_op
        for bubbles in self._devices:
            call = np.where(bubbles.op >= 0, of_op[bubbles.op], -1)
            here = (bubbles.pieces.part == Part.LAUNCH_CALL) & (call >= 0)
            here[here] = named[call[here]]
            self._cut(edit, bubbles, here)
        return True

    def _cut(self, edit: Edit, bubbles: _Bubbles, chosen: Mask) -> None:
        """Take the host time of these pieces out, on the threads that launched what followed."""
        graph = self._graph
        call = np.where(bubbles.op >= 0, graph.launches.of_op[bubbles.op], -1)
        rows = np.flatnonzero(chosen & (call >= 0))
        thread = graph.threads.of_call[call[rows]]
        for number in np.unique(thread).tolist():
            mine = rows[thread == number]
            start = bubbles.pieces.start[mine] + self._shift
            end = bubbles.pieces.end[mine] + self._shift
            cut_host(graph, edit, number, start, end)
            cut_calls(graph, edit, number, start, end)

    def _latency(self, edit: Edit) -> bool:
        """Let operations begin when their launch call returns."""
        graph = self._graph
        saved = np.zeros(len(graph.queues.order), np.int64)
        for bubbles in self._devices:
            here = (bubbles.pieces.part == Part.LAUNCH_LATENCY) & (bubbles.op >= 0)
            length = (bubbles.pieces.end - bubbles.pieces.start)[here]
            np.add.at(saved, graph.queues.place[bubbles.op[here]], length)
        edit.latency[:] = np.maximum(edit.latency - saved[graph.launched], 0)
        return True

    def _links(self, part: Part) -> Int:
        """Links that ended bubbles with such a part and follow one on their queue."""
        queues = self._graph.queues
        found = [b.op[(b.pieces.part == part) & (b.op >= 0)] for b in self._devices]
        op = np.unique(np.concatenate(found))
        op = op[~queues.beside[op] & ~queues.overlaps[op] & (queues.before[op] >= 0)]
        places: Int = queues.place[op]
        return places

    def _nodes(self) -> Int:
        """Of each call, how many nodes of a graph were recorded."""
        launches = self._graph.launches
        nodes: Int = np.zeros(len(self._graph.timeline.host_calls), np.int64)
        np.add.at(nodes, launches.of_op[launches.graph], 1)
        return nodes
