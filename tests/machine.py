"""A machine that runs a loop and records it: what a prediction should say, by running it anew.

One host thread, streams that work in order, constant costs. It is a plain loop over instructions,
apart from everything in `bubblescope.predict`, so a loop run without an instruction is the truth
about what the loop with it would have been.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bubblescope.timeline import Timeline
from tests.synthetic import TraceBuilder


@dataclass(frozen=True, slots=True)
class Costs:
    """What everything takes, in ns.

    call: any CUDA call. latency: from a launch call's beginning to its operation's start, on an
    empty stream. boundary: between operations of a stream, or after an event. node: between nodes
    of a graph. back: from the end of awaited work to the return of the call.
    """

    call: int = 4_000
    latency: int = 6_500
    boundary: int = 1_300
    node: int = 700
    back: int = 4_000


@dataclass(frozen=True, slots=True)
class Work:
    """The host does something, under a range of that name."""

    ns: int
    name: str = "prepare"


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel."""

    name: str
    run: int
    stream: int = 7


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph, its nodes one after the other: names and durations."""

    nodes: tuple[tuple[str, int], ...]
    stream: int = 7
    call: int = 20_000


@dataclass(frozen=True, slots=True)
class Read:
    """The host waits for all work of a stream, of every stream where None."""

    stream: int | None = 7


@dataclass(frozen=True, slots=True)
class Record:
    """An event is recorded in a stream."""

    label: str
    stream: int


@dataclass(frozen=True, slots=True)
class Await:
    """A stream waits for an event."""

    label: str
    stream: int


@dataclass(frozen=True, slots=True)
class Range:
    """An annotation around other instructions."""

    name: str
    inside: tuple[Instruction, ...]


Instruction = Work | Launch | Graph | Read | Record | Await | Range


@dataclass(slots=True)
class Machine:
    """Runs instructions step by step; `steps` marks where each began on the host."""

    costs: Costs = field(default_factory=Costs)
    trace: TraceBuilder = field(default_factory=TraceBuilder)
    now: int = 1_000_000
    free: dict[int, int] = field(default_factory=dict)
    held: dict[int, list[int]] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)

    def run(self, loop: list[Instruction], steps: int) -> Timeline:
        """The recording of so many steps."""
        for number in range(steps):
            began = self.now
            for instruction in loop:
                self._do(instruction, number)
            self.trace.range("annotation", "step", began, self.now - began)
        return self.trace.timeline()

    def _do(self, what: Instruction, number: int) -> None:
        costs, at = self.costs, self.now
        stream = getattr(what, "stream", 7)
        me = self.trace.on(stream=7 if stream is None else stream)
        if isinstance(what, Work):
            self.now += what.ns
            me.range("annotation", what.name, at, what.ns)
            return
        if isinstance(what, Range):
            for inner in what.inside:
                self._do(inner, number)
            me.range("annotation", what.name, at, self.now - at)
            return
        self.now += costs.call
        if isinstance(what, Launch):
            start = self._start(what.stream, at + costs.latency)
            me.launch(what.name, at, costs.call, start, what.run)
            self.free[what.stream] = start + what.run
        elif isinstance(what, Graph):
            self.now = at + what.call
            start = self._start(what.stream, at + what.call + costs.latency)
            nodes = []
            for name, run in what.nodes:
                nodes.append((name, start, run))
                start += run + costs.node
            me.graph(at, what.call, list(nodes))
            self.free[what.stream] = start - costs.node
        elif isinstance(what, Read):
            of_stream = what.stream is not None
            done = (
                self.free.get(what.stream, 0) if of_stream else max(self.free.values(), default=0)
            )
            self.now = max(self.now, done + costs.back)
            call = "cudaStreamSynchronize" if of_stream else "cudaDeviceSynchronize"
            me.sync(at, self.now - at, call, row="stream" if of_stream else "context")
        elif isinstance(what, Record):
            me.record(f"{what.label} {number}", at, costs.call)
            self.events[what.label] = self.free.get(what.stream, 0)
        else:
            me.stream_wait(f"{what.label} {number}", at, costs.call)
            self.held.setdefault(what.stream, []).append(self.events[what.label])

    def _start(self, stream: int, ready: int) -> int:
        """When an operation starts: launched, the one before it done, its event reached."""
        boundary = self.costs.boundary
        before = [self.free.get(stream, 0), *self.held.pop(stream, [])]
        return max([ready, *(t + boundary for t in before if t)])


def recorded(loop: list[Instruction], steps: int = 12, costs: Costs | None = None) -> Timeline:
    """The recording of a loop."""
    return Machine(costs or Costs()).run(loop, steps)


def faster(loop: list[Instruction], name: str, factor: int) -> list[Instruction]:
    """The loop with the kernels of that name `factor` times as fast."""
    changed: list[Instruction] = []
    for what in loop:
        if isinstance(what, Launch) and what.name == name:
            what = replace(what, run=what.run // factor)
        if isinstance(what, Graph):
            nodes = tuple((n, r // factor if n == name else r) for n, r in what.nodes)
            what = replace(what, nodes=nodes)
        changed.append(what)
    return changed
