"""The table of kernels against recordings whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from bubblescope.diagnose import diagnose
from bubblescope.kernels import Kernel, Kernels, tabulate
from bubblescope.timeline import Timeline
from tests.strategies import nonsense, recordings
from tests.synthetic import TraceBuilder

same_every_time = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
COPY = "Memcpy DtoH (Device -> Pageable)"


def loop() -> TraceBuilder:
    """Four steps 10,000 ns apart, t = 10,000 k, all beginning with a bubble but the first:

    a [t+200,t+300) and [t+300,t+500+10k), side on another stream [t+350,t+450), a graph of b<4>
    [t+1000,t+1400) and b<8> [t+1400,t+1500), a copy [t+2000,t+2050).
    So a step lasts from t-7,950 to t+2,050.
    """
    trace = TraceBuilder()
    for k in range(4):
        t = 10_000 * k
        trace.step(k, at=t, dur=9_000)
        trace.launch("a", at=t + 100, dur=10, start=t + 200, run=100)
        trace.launch("a", at=t + 120, dur=10, start=t + 300, run=200 + 10 * k)
        trace.on(stream=9).launch("side", at=t + 140, dur=10, start=t + 350, run=100)
        nodes = [("void n::b<4>(int)", t + 1000, 400), ("void n::b<8>(int)", t + 1400, 100)]
        trace.graph(at=t + 160, dur=10, nodes=nodes)
        trace.copy("DtoH", at=t + 180, dur=10, start=t + 2000, run=50)
    return trace


def table(timeline: Timeline, by: str = "name") -> Kernels:
    return tabulate(timeline, diagnose(timeline), by=by)


def test_every_figure() -> None:
    found = table(loop().timeline())
    # The first step's beginning was not recorded: steps 1 to 3 count.
    assert (found.steps, found.window_ns, found.operations) == (3, 30_000, 18)
    assert (found.durations_ns, found.busy_ns, found.overlapped_ns) == (2_910, 2_610, 300)
    assert found.opaque_ns == 0
    assert found.rows == (
        Kernel("void n::b<4>(int)", "kernel", 1, (7,), 3, 3, 1200, 400, 400, 400, 400, 1.0, 400),
        # 100 100 100 210 220 230; 310, 320 and 330 a step
        Kernel("a", "kernel", 1, (7,), 0, 6, 960, 155, 230, 100, 230, 2.0, 320),
        Kernel("side", "kernel", 1, (9,), 0, 3, 300, 100, 100, 100, 100, 1.0, 100),
        Kernel("void n::b<8>(int)", "kernel", 1, (7,), 3, 3, 300, 100, 100, 100, 100, 1.0, 100),
        Kernel(COPY, "memcpy", 1, (7,), 0, 3, 150, 50, 50, 50, 50, 1.0, 50),
    )
    assert [row.where for row in found.rows] == ["graph", "stream", "stream", "graph", "stream"]
    assert [row.mean_ns for row in found.rows] == [400, 160, 100, 100, 50]


def test_a_family_is_one_row_and_copies_stay_their_own() -> None:
    found = table(loop().timeline(), by="family")
    assert found.durations_ns == 2_910
    b = found.rows[0]
    # 100 100 100 400 400 400
    assert b == Kernel("n::b", "kernel", 2, (7,), 6, 6, 1500, 250, 400, 100, 400, 2.0, 500)
    assert [row.name for row in found.rows[1:]] == ["a", "side", COPY]


def test_a_kernel_inside_and_outside_of_graphs() -> None:
    trace = loop()
    for k in range(4):
        trace.launch("void n::b<4>(int)", 10_000 * k + 190, 5, 10_000 * k + 1600, 30)
    (b,) = [row for row in table(trace.timeline()).rows if row.name.endswith("b<4>(int)")]
    assert (b.where, b.in_graphs, b.calls, b.min_ns) == ("both", 3, 6, 30)


def test_p90_is_the_duration_that_nine_of_ten_calls_do_not_pass() -> None:
    trace = TraceBuilder()
    trace.graph(at=0, dur=10, nodes=[("k", 1_000 * n, n + 1) for n in range(20)])
    (row,) = table(trace.timeline()).rows
    assert (row.calls, row.p90_ns, row.median_ns) == (20, 18, 10)
    trace = TraceBuilder()
    trace.launch("only", at=0, dur=10, start=100, run=7)
    (row,) = table(trace.timeline()).rows
    assert (row.p90_ns, row.median_ns, row.min_ns, row.max_ns) == (7, 7, 7, 7)


def test_without_steps_the_whole_window_counts() -> None:
    trace = TraceBuilder()
    trace.launch("x", at=0, dur=10, start=100, run=50)
    trace.memset(at=20, dur=5, start=200, run=10)
    found = table(trace.timeline())
    assert (found.steps, found.window_ns, found.busy_ns) == (0, 110, 60)
    assert [(row.name, row.calls_per_step, row.ns_per_step) for row in found.rows] == [
        ("x", None, None),
        ("Memset (Device)", None, None),
    ]


def test_replays_recorded_whole_are_opaque() -> None:
    trace = TraceBuilder()
    for k in range(5):
        t = 10_000 * k
        trace.step(k, at=t, dur=9_000)
        trace.whole_graph(at=t + 100, dur=50, start=t + 200, run=5_000, graph=3)
        trace.copy("DtoH", at=t + 180, dur=10, start=t + 6_000, run=50)
    found = table(trace.timeline())
    assert (found.steps, found.opaque_ns, found.durations_ns) == (4, 20_000, 20_200)
    graph = found.rows[0]
    assert (graph.kind, graph.where, graph.in_graphs, graph.total_ns) == (
        "graph",
        "graph",
        4,
        20_000,
    )


def test_several_devices_are_added_up() -> None:
    trace = TraceBuilder()
    for device in (0, 1):
        view = trace.on(device=device)
        for k in range(4):
            t = 10_000 * k
            if device == 0:
                trace.step(k, at=t, dur=9_000)
            view.launch("k", at=t + 100 + device, dur=1, start=t + 200, run=100 + device)
    found = table(trace.timeline())
    assert found.steps == 3
    (row,) = found.rows
    assert (row.calls, row.calls_per_step, row.total_ns) == (6, 2.0, 603)
    assert (row.ns_per_step, found.busy_ns, found.overlapped_ns) == (201, 603, 0)
    assert found.window_ns == 30_000 + 30_000


@same_every_time
@given(recordings())
def test_sums_hold_for_any_recording(timeline: Timeline) -> None:
    for by in ("name", "family"):
        check(timeline, table(timeline, by))


@same_every_time
@given(nonsense())
def test_sums_hold_for_nonsense(timeline: Timeline) -> None:
    if len(timeline.device_ops):
        check(timeline, table(timeline))


def check(timeline: Timeline, found: Kernels) -> None:
    assert sum(row.total_ns for row in found.rows) == found.busy_ns + found.overlapped_ns
    assert sum(row.calls for row in found.rows) == found.operations
    assert min(found.busy_ns, found.overlapped_ns) >= 0
    assert found.operations <= len(timeline.device_ops)
    for row in found.rows:
        assert row.min_ns <= row.median_ns <= row.p90_ns <= row.max_ns or row.calls < 2
        assert row.calls * row.min_ns <= row.total_ns <= row.calls * row.max_ns
        assert 0 <= row.in_graphs <= row.calls
    if not found.steps:
        ops = timeline.device_ops
        assert found.operations == len(ops)
        assert found.durations_ns == int(np.sum(ops.end - ops.start))


def test_an_operation_belongs_to_the_step_that_launched_it() -> None:
    """What step k launches still runs when a copy of step k + 1 on another stream begins."""
    trace = TraceBuilder()
    for k in range(5):
        t = 10_000 * k
        trace.step(k, at=t, dur=9_000)
        trace.on(stream=9).copy("HtoD", at=t + 100, dur=10, start=t + 200, run=50)
        trace.launch("k", at=t + 150, dur=10, start=t + 1_000, run=9_000)
        trace.launch("late", at=t + 200, dur=10, start=t + 10_300 + k, run=300)
    found = table(trace.timeline())
    late = next(row for row in found.rows if row.name == "late")
    assert late.calls == found.steps
    assert late.calls_per_step == 1


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rows_in_a_file_says_nothing(seed: int) -> None:
    timeline = loop().timeline()
    shuffled = np.random.default_rng(seed).permutation(len(timeline.device_ops))
    again = Timeline.of(
        timeline.meta,
        device_ops=timeline.device_ops.take(shuffled),
        host_calls=timeline.host_calls,
        steps=timeline.steps,
    )
    assert table(again).rows == table(timeline).rows
