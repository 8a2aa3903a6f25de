"""Graph replays with hand-reasoned truth: whole, node by node, and with records missing."""

from __future__ import annotations

import pytest

from tests.agreement import only, parts, parts_of, told
from tests.synthetic import TraceBuilder


def test_replays_recorded_whole_are_opaque():
    # [100, 1100) and [1150, 2150), the second queued at 60: 50 between. A kernel in [2150, 2160).
    trace = TraceBuilder().whole_graph(at=40, dur=10, start=100, run=1000)
    trace.whole_graph(at=60, dur=10, start=1150, run=1000)
    trace.launch("k", at=80, dur=5, start=2150, run=10)
    device = only(trace)
    assert parts_of(device) == {"device gap": 50}
    assert (device.busy_ns, device.opaque_ns) == (2010, 2000)


def test_replay_recorded_node_by_node():
    # Dry from 50. The launch call [100, 600) is still running when its first node starts at
    # 300: 50 host gap, 200 launch call, clamped there. Then 10 and 5 between the nodes.
    trace = TraceBuilder().launch("k", at=0, dur=10, start=20, run=30)
    trace.graph(at=100, dur=500, nodes=[("a", 300, 100), ("b", 410, 100), ("c", 515, 85)])
    assert parts(trace) == {"host gap": 50, "launch call": 200, "graph gap": 10 + 5}


def test_first_node_that_starts_with_the_device_already_dry_inside_the_call():
    # The call began at 40, before the device ran dry at 50: all of [50, 300) is the call.
    trace = TraceBuilder().launch("k", at=0, dur=10, start=20, run=30)
    trace.graph(at=40, dur=500, nodes=[("a", 300, 100)])
    assert parts(trace) == {"launch call": 250}


def test_copy_node_on_a_side_stream_is_inside_its_graph():
    nodes = [("a", 100, 100), ("Memcpy", 250, 10, 13, "memcpy"), ("b", 300, 100)]
    assert parts(TraceBuilder().graph(at=0, dur=50, nodes=nodes)) == {"graph gap": 50 + 40}


def test_foreign_copy_between_two_nodes():
    # [200, 250) ends with a copy of its own, queued before; [260, 300) with a later node of the
    # replay, whatever ran last before it.
    trace = TraceBuilder().graph(at=0, dur=50, nodes=[("a", 100, 100), ("b", 300, 100)])
    trace.on(stream=13).copy("DtoH", at=60, dur=5, start=250, run=10, memory="Pinned")
    assert parts(trace) == {"device gap": 50, "graph gap": 40}


def replays(*recorded: str, graph: int, numbered: bool = False) -> TraceBuilder:
    """Replays of 10 ns nodes 10 ns apart, queued at once, 50 ns from one to the next."""
    trace, start = TraceBuilder(), 1000
    for i, names in enumerate(recorded):
        nodes = [
            (name, start + 20 * k, 10, 7, "kernel", "abcdx".index(name) if numbered else -1)
            for k, name in enumerate(names)
        ]
        trace.graph(at=10 * i, dur=5, nodes=nodes, graph=graph)
        start = nodes[-1][1] + 10 + 50
    return trace


@pytest.mark.parametrize(
    ("recorded", "graph", "numbered", "unknown", "graph_gap", "device_gap"),
    [
        # Whole replays: two gaps of 10 in each, 50 between them.
        (("abc", "abc"), 5, True, 0, 40, 50),
        # The middle one lacks a node: the 50 on both sides and its 10 are unknown.
        (("abc", "ab", "abc"), 5, True, 110, 40, 0),
        (("abc", "ab", "abc"), -1, False, 110, 40, 0),
        (("abc", "bc", "abc"), -1, False, 110, 40, 0),
        # With names alone the shorter one is a graph of its own: it is as frequent,
        (("abc", "ab"), -1, False, 0, 20 + 10, 50),
        (("abc", "ab", "ab"), -1, False, 0, 20 + 10 + 10, 100),
        # or no part of the longer one,
        (("abc", "ax", "abc"), -1, False, 0, 20 + 10 + 20, 100),
        (("abc", "aa", "abc"), -1, False, 0, 20 + 10 + 20, 100),
        # or neither begins nor ends as it does.
        (("abc", "b", "abc"), -1, False, 0, 20 + 20, 100),
        # Where nodes have ids, being part of a longer one is enough.
        (("abc", "ab"), -1, True, 60, 20, 0),
        (("abc", "ab", "ab"), -1, True, 120, 20, 0),
        (("abc", "b", "abc"), -1, True, 100, 40, 0),
        (("abc", "ax", "abc"), -1, True, 0, 20 + 10 + 20, 100),
    ],
)
def test_replays_of_which_nodes_are_missing(
    recorded, graph, numbered, unknown, graph_gap, device_gap
):
    expected = {"unknown": unknown, "graph gap": graph_gap, "device gap": device_gap}
    trace = replays(*recorded, graph=graph, numbered=numbered)
    assert parts(trace) == {k: v for k, v in expected.items() if v}


def test_of_two_that_end_together_the_one_launched_last_ran_last():
    # "ab" lacks a node, and "x", launched after it, ends at the same time: what "x" tells of the
    # gap after it is not in doubt. The 50 and 10 before are unknown.
    trace = replays("abc", "ab", graph=5)
    trace.launch("x", at=30, dur=5, start=1_120, run=10)
    trace.launch("y", at=40, dur=5, start=1_137, run=10)
    assert parts(trace) == {"graph gap": 20, "unknown": 60, "device gap": 7}


def test_replays_of_another_rank_say_nothing_of_ours():
    # Rank 1 replays a longer graph, and more often: it is another program's.
    trace = replays("ab", graph=-1)
    other = replays("abc", "abc", graph=-1)
    for row in (*other.ops, *other.calls):
        row["rank"] = 1
    trace.ops += other.ops
    trace.calls += other.calls
    assert [parts_of(d) for d in told(trace).devices] == [
        {"graph gap": 10},
        {"graph gap": 40, "device gap": 50},
    ]
