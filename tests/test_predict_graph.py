"""Single shapes of recording: what the graph takes each thing to have waited for."""

from __future__ import annotations

import pytest

from bubblescope.predict import Graph, Prediction, parse, predict
from bubblescope.timeline import Timeline
from tests.synthetic import TraceBuilder

STEPS = 12


def changed(timeline: Timeline, *texts: str) -> Prediction:
    made = predict(timeline, [parse(text) for text in texts])
    assert made.withheld == ""
    assert made.replayed_ns == made.step_ns
    return made


# Kernels that overlap (PDL) --------------------------------------------------------------------


def pdl_chain() -> Timeline:
    """Graphs of three kernels; each begins 2 us before the one ahead ends and then works 10 us."""
    trace = TraceBuilder()
    for n in range(STEPS):
        at = n * 100_000
        trace.range("annotation", "step", at, 60_000)
        first = at + 20_000
        nodes = [
            ("a", first, 10_000),
            ("b", first + 8_000, 12_000),
            ("c", first + 18_000, 12_000),
        ]
        trace.graph(at, 10_000, nodes)
        trace.sync(at + 11_000, first + 30_000 + 4_000 - (at + 11_000), row="stream")
    return trace.timeline()


@pytest.mark.parametrize(
    ("what_if", "saving"),
    [
        ("speed-up:a=2", 5_000),
        # Of b's 12 us the first two are waiting for a.
        ("speed-up:b=2", 5_000),
        ("speed-up:c=5", 8_000),
        ("speed-up:*=2", 15_000),
    ],
)
def test_a_kernel_that_overlaps_waits_for_the_one_ahead(what_if: str, saving: int) -> None:
    """The graph is on the way round: launch, kernels, read, the host's 45 us, launch."""
    assert changed(pdl_chain(), what_if).saving_ns == saving


def test_a_device_may_have_any_number() -> None:
    trace = TraceBuilder().on(device=2**63 - 1)
    for n in range(STEPS):
        at = n * 100_000
        trace.range("annotation", "step", at, 60_000)
        trace.launch("k", at, 5_000, at + 10_000, 30_000).sync(at + 6_000, 36_000, row="stream")
    assert changed(trace.timeline(), "speed-up:k=2").saving_ns == 15_000


# Graphs that branch ----------------------------------------------------------------------------


def branched() -> Timeline:
    """A fork into 30 us on one stream and 10 + 10 us on another, and a join."""
    trace = TraceBuilder()
    for n in range(STEPS):
        at = n * 100_000
        trace.range("annotation", "step", at, 60_000)
        t = at + 20_000
        nodes = [
            ("fork", t, 4_000, 7),
            ("long", t + 5_000, 30_000, 7),
            ("short", t + 5_000, 10_000, 9),
            ("short", t + 16_000, 10_000, 9),
            ("join", t + 36_000, 5_000, 7),
        ]
        trace.graph(at, 10_000, nodes)
        trace.sync(at + 11_000, t + 41_000 + 4_000 - (at + 11_000), row="stream")
    return trace.timeline()


@pytest.mark.parametrize(
    ("what_if", "saving"),
    [
        ("speed-up:fork=4", 3_000),
        ("speed-up:join=5", 4_000),
        ("speed-up:short=2", 0),
        ("speed-up:long=5/4", 6_000),
    ],
)
def test_the_longer_branch_decides(what_if: str, saving: int) -> None:
    assert changed(branched(), what_if).saving_ns == saving


# Replays recorded whole ------------------------------------------------------------------------


def whole() -> Timeline:
    trace = TraceBuilder()
    for n in range(STEPS):
        at = n * 100_000
        trace.range("annotation", "step", at, 60_000)
        trace.whole_graph(at, 10_000, at + 14_000, 50_000, graph=3)
        trace.sync(at + 11_000, 57_000, row="stream")
    return trace.timeline()


def test_a_replay_recorded_whole_is_one_operation() -> None:
    assert changed(whole(), "speed-up:graph 3=2").saving_ns == 25_000
    # Without the read: 50 us of graph, and the boundary taken where none was recorded.
    assert changed(whole(), "read:cudaStreamSynchronize").predicted_ns == 51_000


# What the recording does not say ---------------------------------------------------------------


def unsaid(sync_row: str) -> Timeline:
    """A kernel on another stream begins 2 us after the first ends; a read waits for both."""
    trace = TraceBuilder()
    side = trace.on(stream=9)
    for n in range(STEPS):
        at = n * 100_000
        trace.range("annotation", "step", at, 60_000)
        trace.launch("main", at, 4_000, at + 6_500, 40_000)
        trace.call("cudaStreamWaitEvent", at + 5_000, 1_000)
        side.launch("side", at + 7_000, 4_000, at + 48_500, 10_000)
        trace.on(stream=9).sync(at + 12_000, 50_500, row=sync_row)
    return trace.timeline()


def test_a_wait_for_another_stream_is_concluded_from_times() -> None:
    made = changed(unsaid("stream"), "speed-up:main=2")
    assert made.inferred.stream_waits == STEPS
    assert made.inferred.reads == 0
    assert made.saving_ns == 20_000


def test_what_a_read_waited_for_is_concluded_from_times() -> None:
    made = changed(unsaid(""), "speed-up:main=2", "speed-up:side=2")
    assert made.inferred.reads == STEPS
    assert made.saving_ns == 25_000


def test_a_read_of_unknown_work_keeps_its_length() -> None:
    """It returns long before the only kernel ends: what it waited for is not in the recording."""
    trace = TraceBuilder()
    for n in range(STEPS):
        at = n * 100_000
        trace.range("annotation", "step", at, 60_000)
        trace.launch("main", at, 4_000, at + 6_500, 80_000)
        trace.call("cudaEventSynchronize", at + 10_000, 20_000)
    made = changed(trace.timeline(), "speed-up:main=8")
    assert made.inferred.fixed == STEPS
    assert made.saving_ns == 0


# Several devices and threads -------------------------------------------------------------------


def test_a_step_of_two_devices_ends_with_the_later_one() -> None:
    trace = TraceBuilder()
    other = trace.on(device=1, stream=20)
    for n in range(STEPS):
        at = n * 100_000
        trace.range("annotation", "step", at, 60_000)
        trace.launch("left", at, 4_000, at + 6_500, 30_000)
        other.launch("right", at + 5_000, 4_000, at + 11_500, 50_000)
        trace.call("cudaDeviceSynchronize", at + 10_000, 55_500, sync="context")
    timeline = trace.timeline()
    assert changed(timeline, "speed-up:left=2").saving_ns == 0
    assert changed(timeline, "speed-up:right=2").saving_ns == 25_000


def test_a_thread_that_waits_itself_does_not_hold_the_other() -> None:
    trace = TraceBuilder()
    reader = trace.on(thread=5000)
    for n in range(STEPS):
        at = n * 100_000
        trace.range("annotation", "step", at, 60_000)
        trace.launch("main", at, 4_000, at + 6_500, 20_000)
        reader.sync(at + 10_000, 20_500, row="stream")
    made = changed(trace.timeline(), "read:cudaStreamSynchronize")
    assert made.saving_ns == 0


# Recordings that contradict themselves ---------------------------------------------------------


def test_clocks_that_contradict_themselves_withhold_the_prediction() -> None:
    """Every other kernel begins 40 us before its launch does."""
    trace = TraceBuilder()
    for n in range(STEPS):
        at = n * 100_000
        trace.range("annotation", "step", at, 60_000)
        trace.launch("main", at, 4_000, at + 6_500 - 46_500 * (n % 2), 20_000)
    made = predict(trace.timeline(), [])
    assert made.withheld.startswith("replayed unchanged, the step takes ")
    assert made.predicted_ns is None
    assert made.replayed_ns is not None
    assert made.step_ns is not None
    assert abs(made.replayed_ns - made.step_ns) > made.step_ns // 100


def test_a_recording_without_calls_is_withheld() -> None:
    trace = TraceBuilder()
    for n in range(STEPS):
        trace.orphan("a", n * 100, 50).orphan("b", n * 100 + 60, 30)
    timeline = trace.timeline()
    assert len(Graph(timeline).replay().end) == 2 * STEPS
    assert predict(timeline, []).withheld != ""


def test_an_overlap_on_a_stream_on_which_nothing_had_ended() -> None:
    """The second begins 9 us after its launch, beside the first, though 2 us are usual."""
    trace = TraceBuilder()
    side = trace.on(stream=9)
    for k in range(3):
        side.launch("side", 20_000 * k, 1_000, 20_000 * k + 2_000, 3_000)
    trace.launch("first", 100_000, 1_000, 102_000, 20_000)
    trace.launch("second", 103_000, 1_000, 112_000, 15_000)
    timeline = trace.timeline()
    times = Graph(timeline).replay()
    assert times.start.tolist() == timeline.device_ops.start.tolist()
    assert times.end.tolist() == timeline.device_ops.end.tolist()
