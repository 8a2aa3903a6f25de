"""Predictions of random loops against the truth: the loop run anew with one thing changed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bubblescope.predict import parse
from bubblescope.predict.graph import Graph as Dependencies
from bubblescope.predict.graph import Times
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import Mask
from tests.machine import (
    Await,
    Graph,
    Instruction,
    Launch,
    Machine,
    Read,
    Record,
    Work,
    faster,
)

Ran = tuple[int, str, int, int]

STREAMS = (7, 9)
KERNELS = ("gemm", "norm", "rope")


def known(loop: list[Instruction]) -> Timeline:
    """The recording of a loop, behind one that shows what each call and boundary usually takes."""
    machine = Machine()
    far = Work(300_000, "apart")
    for stream in STREAMS:
        for _ in range(9):
            for alone in (1, 2):
                machine.now += far.ns
                for _ in range(alone):
                    machine._do(Launch("warm", 20_000, stream), -1)
        for nodes in (1, 2, 3):
            for _ in range(3):
                machine.now += far.ns
                machine._do(Graph((("warm", 3_000),) * nodes, stream), -1)
    for which in (7, None, 7, None):
        machine.now += far.ns
        machine._do(Read(which), -1)
    return machine.run(loop, 8)


def ran(timeline: Timeline, times: Times | None = None, gone: Mask | None = None) -> list[Ran]:
    """Every operation of the loop: stream, name, start and end, from where the loop began."""
    ops = timeline.device_ops
    start, end = (ops.start, ops.end) if times is None else (times.start, times.end)
    names = [ops.name.values[code] for code in ops.name.codes.tolist()]
    left = np.ones(len(ops), np.bool_) if gone is None else ~gone
    rows = zip(ops.stream.tolist(), names, start.tolist(), end.tolist(), left.tolist(), strict=True)
    found = [row[:4] for row in rows if row[1] != "warm" and row[4]]
    began = min(row[2] for row in found)
    return sorted((s, n, a - began, b - began) for s, n, a, b in found)


launches = st.builds(
    Launch,
    st.sampled_from(KERNELS),
    st.sampled_from([1_000, 2_000, 5_000, 21_000, 60_000]),
    st.sampled_from(STREAMS),
)
graphs = st.builds(
    Graph,
    st.lists(
        st.tuples(st.sampled_from(KERNELS), st.sampled_from([1_000, 9_000, 30_000])),
        min_size=1,
        max_size=3,
    ).map(tuple),
    st.sampled_from(STREAMS),
)
handed_over = st.sampled_from([(7, 9), (9, 7)]).map(
    lambda way: [Record("event", way[0]), Await("event", way[1])]
)
pieces = st.one_of(
    launches.map(lambda x: [x]),
    graphs.map(lambda x: [x]),
    st.builds(Work, st.sampled_from([500, 4_000, 20_000, 80_000])).map(lambda x: [x]),
    st.builds(Read, st.sampled_from([*STREAMS, None])).map(lambda x: [x]),
    handed_over,
)
loops = st.lists(pieces, min_size=2, max_size=8).map(
    lambda made: [*(x for piece in made for x in piece), Launch("end", 2_000)]
)


def without_nodes(loop: list[Instruction], name: str) -> list[Instruction]:
    """The loop without the kernels of a name."""
    kept: list[Instruction] = []
    for what in loop:
        if isinstance(what, Graph):
            nodes = tuple(node for node in what.nodes if node[0] != name)
            kept += [Graph(nodes, what.stream)] if nodes else []
        elif not (isinstance(what, Launch) and what.name == name):
            kept.append(what)
    return kept


CHANGES: dict[str, Callable[[list[Instruction]], list[Instruction]]] = {
    "speed-up:gemm=2": lambda loop: faster(loop, "gemm", 2),
    "speed-up:norm=20": lambda loop: faster(loop, "norm", 20),
    "launch:gemm": lambda loop: without_nodes(loop, "gemm"),
    "host:prepare": lambda loop: [x for x in loop if not isinstance(x, Work)],
    "read:cudaStreamSynchronize": lambda loop: [
        x for x in loop if not (isinstance(x, Read) and x.stream is not None)
    ],
    "read:cudaDeviceSynchronize": lambda loop: [x for x in loop if x != Read(None)],
    "wait:cudaStreamSynchronize": lambda loop: [
        Work(4_000, "call") if isinstance(x, Read) and x.stream is not None else x for x in loop
    ],
}


@settings(max_examples=150, deadline=None)
@given(loops, st.sampled_from(sorted(CHANGES)))
def test_a_random_loop_with_one_thing_changed(loop: list[Instruction], what_if: str) -> None:
    changed = CHANGES[what_if](loop)
    assume(changed != loop)
    timeline = known(loop)
    graph = Dependencies(timeline)
    edit = graph.edit()
    unchanged = graph.replay(edit)
    assert np.array_equal(unchanged.start, timeline.device_ops.start)
    assert np.array_equal(unchanged.end, timeline.device_ops.end)
    parse(what_if).apply(graph, edit)
    assert ran(timeline, graph.replay(edit), edit.gone) == ran(known(changed))
