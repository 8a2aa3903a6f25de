"""Launch statistics: figures by hand, and agreement with plain loops on any recording."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.issue import LaunchStatistics, Spread
from bubblescope.diagnose.launchstats import SLICES
from bubblescope.timeline import Timeline
from tests.oracle import solve
from tests.oracle_launches import ahead, depth, kind, launched, moments
from tests.strategies import nonsense, recordings
from tests.synthetic import TraceBuilder

US = 1_000

same_every_time = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def said(trace: TraceBuilder) -> LaunchStatistics:
    found = diagnose(trace.timeline()).launches
    assert found is not None
    return found


def test_spread() -> None:
    spread = Spread.of(np.arange(1, 101)[::-1])
    assert spread == Spread(100, min_ns=1, median_ns=50, p90_ns=90, p99_ns=99, max_ns=100)
    assert Spread.of(np.array([7])) == Spread(1, 7, 7, 7, 7, 7)
    assert Spread.of(np.zeros(0, np.int64)) is None


def queue() -> TraceBuilder:
    """Three kernels launched at once, which run for 3 x 100, and one after the device ran dry."""
    trace = TraceBuilder()
    for i in range(3):
        trace.launch("k", at=10 * i, dur=5, start=15 + 100 * i, run=100)
    return trace.launch("k", at=400, dur=20, start=430, run=10)


def test_latency_is_that_of_an_idle_device_and_queueing_that_of_a_busy_one() -> None:
    found = said(queue())
    (kernel,) = found.calls
    assert kernel.kind == "kernel"
    assert kernel.call == Spread(4, 5, 5, 20, 20, 20)
    # The first and the last met an idle device: 15 and 30 from call to start.
    assert kernel.latency == Spread(2, 15, 22, 30, 30, 30)
    # The others returned at 15 and 25, and began at 115 and 215.
    assert kernel.queued == Spread(2, 100, 145, 190, 190, 190)
    assert (found.launches, found.call_ns) == (4, 35)
    assert found.launch_and_queue_ns == 15 + (115 - 10) + (215 - 20) + 30
    assert (found.launches_per_step, found.launch_and_queue_ns_per_step) == (None, None)


def test_run_ahead_and_depth() -> None:
    (device,) = said(queue()).run_ahead
    # At 0 nothing; at 10 one of [15, 115): 105; at 20 two, to 215: 195; at 400 nothing.
    assert device.ahead == Spread(4, 0, 52, 195, 195, 195)
    assert (device.launches, device.dry) == (4, 2)
    assert (device.depth_median, device.depth_max) == (0, 2)
    # Of the 64 slices of [15, 440), i begins at 15 + 425 i // 64: 58 at 400. What is launched
    # before the window counts in the first.
    assert len(device.over_time) == SLICES
    slices = {i: x for i, x in enumerate(device.over_time) if x is not None}
    assert {i: (x.ahead_ns, x.depth) for i, x in slices.items()} == {0: (0, 0), 58: (0, 0)}


def test_kernels_that_are_shorter_than_their_call() -> None:
    trace = TraceBuilder().launch("short", at=0, dur=10, start=20, run=9)
    trace.launch("as long", at=40, dur=10, start=60, run=10)
    trace.graph(at=100, dur=50, nodes=[("in a graph", 160, 5)])
    found = said(trace)
    assert (found.kernels, found.short, found.short_ns) == (2, 1, 9)
    assert [(c.kind, c.call.count) for c in found.calls] == [("kernel", 2), ("graph", 1)]


def test_copies_from_pageable_memory() -> None:
    trace = TraceBuilder().launch("k", at=0, dur=5, start=10, run=100)
    trace.copy("DtoH", at=20, dur=200, start=120, run=10)  # returns at 220, done at 130
    trace.copy("HtoD", at=300, dur=30, start=340, run=10)  # staged: returns before
    trace.copy("DtoH", at=400, dur=5, start=420, run=10, memory="Pinned")
    costs = {c.name: (c.calls, c.blocking, c.ns) for c in said(trace).pageable}
    assert costs == {"DtoH": (1, 1, 200), "HtoD": (1, 0, 30)}


def test_allocator_calls() -> None:
    trace = TraceBuilder().launch("k", at=0, dur=5, start=10, run=10)
    trace.call("cudaMalloc", at=30, dur=40).call("cudaFree", at=80, dur=100)
    trace.call("cudaMalloc", at=200, dur=50).launch("k", at=260, dur=5, start=270, run=10)
    found = [(c.name, c.calls, c.ns) for c in said(trace).allocator]
    assert found == [("cudaFree", 1, 100), ("cudaMalloc", 2, 90)]


def decode(paused: int | None, often: int = 1) -> TraceBuilder:
    """Ten steps of 1 ms with a kernel of 300 us; the host stands still for 2 ms in some."""
    trace, at = TraceBuilder(), 0
    for k in range(10):
        long = 2_000 * US if paused is not None and paused <= k < paused + often else 0
        trace.range("annotation", f"decode {k}", at, 900 * US + long)
        trace.range("op", "schedule", at + 50 * US, 50 * US + long)
        trace.launch("k", at=at + 100 * US + long, dur=US, start=at + 110 * US + long, run=300 * US)
        at += 1_000 * US + long
    return trace


def test_a_pause_is_told_from_the_usual_gap() -> None:
    found = said(decode(paused=6))
    (pause,) = found.pauses
    assert (pause.step, pause.doing, pause.name) == (6, "framework op", "schedule")
    assert (pause.ns, pause.typical_ns) == (2_050 * US, 50 * US)
    assert (found.pauses_count, found.pauses_ns) == (1, 2_000 * US)


def test_what_happens_often_is_no_pause() -> None:
    assert said(decode(paused=None)).pauses == ()
    assert said(decode(paused=4, often=3)).pauses == ()


def test_figures_a_step() -> None:
    found = said(decode(paused=6))
    assert (found.launches, found.launches_per_step) == (10, 1)
    assert (found.call_ns_per_step, found.launch_and_queue_ns_per_step) == (US, 10 * US)


def test_a_window_of_steps_holds_only_what_is_in_it() -> None:
    d = diagnose(decode(paused=6).timeline(), window=(2, 5))
    assert d.launches is not None
    assert (d.launches.launches, d.launches.run_ahead[0].launches) == (3, 3)


def test_no_launch_is_known() -> None:
    trace = TraceBuilder().orphan("k", 10, 5).orphan("k", 20, 5)
    assert diagnose(trace.timeline()).launches is None


def agree(timeline: Timeline) -> None:
    found, truth = diagnose(timeline).launches, solve(timeline)
    each = [launched(truth, device) for device in truth.devices]
    calls = [x for one in each for x in one]
    if not calls:
        assert found is None
        return
    assert found is not None
    assert found.launches == len(calls)
    assert found.call_ns == sum(x.length for x in calls)
    assert found.launch_and_queue_ns == sum(x.wait for x in calls)
    for name in ("kernel", "graph"):
        mine = [x for x in calls if kind(x.call) == name]
        told = {c.kind: c for c in found.calls}.get(name)
        assert bool(mine) == (told is not None)
        if told is not None:
            assert told.call == spread(x.length for x in mine)
            assert told.latency == spread(x.wait for x in mine if x.dry)
            assert told.queued == spread(x.queued for x in mine if not x.dry)
    own = [x for x in calls if kind(x.call) == "kernel"]
    short = [x.first.end - x.first.start for x in own]
    short = [ran for ran, x in zip(short, own, strict=True) if ran < x.length]
    assert (found.kernels, found.short, found.short_ns) == (len(own), len(short), sum(short))
    told_of = {(x.rank, x.device): x for x in found.run_ahead}
    for device in truth.devices:
        times = moments(truth, device)
        run_ahead = told_of.get((device.rank, device.device))
        assert bool(times) == (run_ahead is not None)
        if run_ahead is None:
            continue
        aheads = [ahead(truth, device, t) for t in times]
        assert run_ahead.ahead == spread(aheads)
        assert run_ahead.dry == aheads.count(0)
        if all(o.launch is None or o.launch.start < o.end + truth.shift for o in device.ops):
            depths = sorted(depth(truth, device, t) for t in times)
            middle = depths[(len(depths) - 1) // 2] + depths[len(depths) // 2]
            assert (run_ahead.depth_median, run_ahead.depth_max) == (middle // 2, depths[-1])


def spread(values: object) -> Spread | None:
    """By sorting: the median is the mean of the middle two, rounded down."""
    ordered = sorted(values)  # type: ignore[call-overload]
    if not ordered:
        return None
    count = len(ordered)
    nine, most = (-(-count * share // 100) - 1 for share in (90, 99))
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) // 2
    return Spread(count, ordered[0], middle, ordered[nine], ordered[most], ordered[-1])


@given(recordings())
@same_every_time
def test_what_machines_could_do(timeline: Timeline) -> None:
    agree(timeline)


@given(nonsense())
@same_every_time
def test_what_no_machine_would_do(timeline: Timeline) -> None:
    agree(timeline)
