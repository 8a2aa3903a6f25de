"""Comparisons of loops whose figures are known by construction, and of anything with itself."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import HealthCheck, given, settings

from bubblescope.compare import compare
from bubblescope.compare.model import Comparison, Figure, State, Verdict
from bubblescope.diagnose.model import Part
from bubblescope.report import comparison_json
from bubblescope.report.comparison import summary
from bubblescope.timeline import Timeline
from tests.loops import US, run, with_read, without
from tests.strategies import recordings
from tests.synthetic import TraceBuilder


def us(figure: Figure) -> tuple[float | None, ...]:
    values = (figure.a, figure.b, figure.difference)
    return tuple(None if v is None else v / US for v in values)


def test_a_read_taken_out():
    found = compare(run(with_read()), run(without()))
    assert us(found.step) == (100, 70, -30)
    assert (found.step.spread, found.step.beyond) == (0, True)
    assert us(found.busy) == (60, 60, 0)
    assert us(found.idle) == (40, 10, -30)
    parts = {p: us(f) for p, f in found.parts.items() if f.a or f.b}
    assert parts == {
        Part.READ_TAIL: (5, 0, -5),
        Part.HOST_GAP: (25, 0, -25),
        Part.LAUNCH_CALL: (5, 5, 0),
        Part.LAUNCH_LATENCY: (5, 5, 0),
    }
    ((read),) = found.reads
    assert read.a is not None
    assert (read.b, read.a.calls, read.a.exposed_idle_ns_per_step) == (None, 6, 35 * US)
    gone = {c.a.kind for c in found.findings if c.a is not None and c.b is None}
    assert gone == {"blocking read", "host gap"}
    assert [c for c in found.findings if c.a is None] == []
    # gemm<4> and gemm<8> are one family.
    (family,) = found.families
    assert (family.name, family.count_a, family.count_b, family.state) == ("gemm", 6, 6, State.SAME)
    assert found.device_work.verdict is Verdict.UNCHANGED
    assert {(c.group, c.name): (c.count_a, c.count_b) for c in found.calls} == {
        ("launch", "cudaLaunchKernel"): (6, 6),
        ("synchronise", "cudaStreamSynchronize"): (6, 0),
    }
    assert found.notes == ()
    assert summary(found) == [
        "B's step is 30 us (30.0 %) shorter: 100 to 70 us, beyond the 0 us between steps.",
        "Gone: cudaStreamSynchronize, 1.0 a step, and the 35 us a step of idle that it exposed.",
        "As many copies, launches and framework ops in all.",
        "Device work unchanged: every family of operations runs as often a step, and busy time "
        "differs by no more than between steps.",
    ]


def test_the_other_way_round_it_is_new():
    found = compare(run(without()), run(with_read()))
    assert us(found.step) == (70, 100, 30)
    assert summary(found)[1].startswith("New: cudaStreamSynchronize, 1.0 a step")
    assert [c.b.kind for c in found.findings if c.b is not None and c.a is None] != []


def test_longer_kernels_are_changed_work():
    found = compare(run(with_read()), run(with_read(more=7)))
    assert us(found.busy) == (60, 67, 7)
    (family,) = found.families
    assert family.state is State.CHANGED
    assert family.ns is not None
    assert us(family.ns) == (60, 67, 7)
    assert found.device_work.verdict is Verdict.CHANGED
    assert "busy time differs by more" in summary(found)[-1]


def test_counts_in_all_are_of_the_recordings_as_they_are():
    found = compare(run(with_read(8)), run(with_read(6)))
    (kernels,) = found.kinds
    assert (kernels.count_a, kernels.count_b, kernels.in_all) == (8, 6, -2)
    assert (kernels.count.a, kernels.count.b, kernels.state) == (1, 1, State.SAME)
    assert found.notes == (
        "A holds 8 steps, B 6: what is given in all is of the recordings as they are",
    )


def test_a_window_holds_for_every_table():
    found = compare(run(with_read(8), (2, 5)), run(with_read(6), (2, 5)))
    (kernels,) = found.kinds
    assert (kernels.count_a, kernels.count_b) == (3, 3)
    assert {c.name: (c.count_a, c.count_b) for c in found.calls} == {
        "cudaLaunchKernel": (3, 3),
        "cudaStreamSynchronize": (3, 3),
    }
    assert found.notes == ()


def test_an_operation_belongs_to_the_step_that_launched_it():
    """The side stream's kernel of step k runs while step k + 1 has begun on the main one."""
    trace = with_read()
    side = trace.on(thread=2, stream=9)
    for k in range(6):
        side.launch("side", (100 * k + 30) * US, US, (100 * k + 125) * US, 2 * US)
    found = compare(run(trace), run(with_read()))
    (gone,) = [c for c in found.families if c.name == "side"]
    # All of steps 1 to 5 launched one, and so did step 0, which does not count.
    assert (gone.count_a, gone.count.a, gone.count.spread) == (6, 1, 0)
    assert gone.state is State.VANISHED


def overlapping(ns: int) -> TraceBuilder:
    trace = without()
    side = trace.on(stream=9)
    for k in range(6):
        side.launch("side", (70 * k + 16) * US, US, (70 * k + 25) * US, ns)
    return trace


def test_idle_is_not_compared_across_a_change_of_overlap():
    found = compare(run(overlapping(30 * US)), run(overlapping(10 * US)))
    assert (found.overlapped.a, found.overlapped.b) == (30 * US, 10 * US)
    for figure in (found.busy, found.idle, *found.parts.values()):
        assert figure.difference is None
    assert us(found.step) == (70, 70, 0)
    assert found.device_work.verdict is Verdict.NOT_KNOWN
    assert "overlap for 30 us a step in A and 10 us in B" in found.notes[0]
    # 0.6 us of 70 are less than a hundredth.
    assert compare(run(overlapping(30 * US)), run(overlapping(29_400))).notes == ()


def test_levels_are_not_compared():
    node, whole = TraceBuilder(), TraceBuilder()
    for k in range(4):
        t = 100 * k * US
        node.step(k, t, 90 * US).graph(
            t + US, US, [("a", t + 5 * US, 10 * US), ("b", t + 16 * US, 10 * US)]
        )
        whole.step(k, t, 90 * US).whole_graph(t + US, US, t + 5 * US, 21 * US)
    found = compare(run(node), run(whole))
    assert found.notes[0].startswith("A was recorded at node level, B at graph level")
    assert (found.kinds, found.families) == ((), ())
    assert found.idle.difference is None
    assert found.device_work.verdict is Verdict.NOT_KNOWN


def test_without_steps_only_what_is_in_all_is_compared():
    trace = TraceBuilder().launch("a", 0, 5, 10, 100).launch("b", 200, 5, 210, 100)
    found = compare(run(trace), run(without()))
    assert found.step == Figure(None, 70 * US, None)
    assert [(c.name, c.in_all) for c in found.kinds] == [("kernel", 4)]
    assert found.notes[0] == "no whole step was found in A: only what is in all is compared"
    assert summary(found)[0].startswith("Steps were not found on both sides")


def fields(found: Comparison) -> dict:
    return json.loads(comparison_json.to_json(found))


def test_json():
    told = fields(compare(run(with_read()), run(without())))
    assert told["step"] == {
        "a_ns": 100_000,
        "b_ns": 70_000,
        "difference_ns": -30_000,
        "spread_ns": 0,
        "beyond_spread": True,
    }
    assert set(told["parts"]) == {p.label for p in Part}
    (read,) = told["reads"]
    assert (read["name"], read["b"], read["a"]["calls"]) == ("cudaStreamSynchronize", None, 6)
    (family,) = told["families"]
    assert (family["state"], family["difference"], family["per_step_ns"]["a_ns"]) == (
        "same",
        0,
        60_000,
    )
    assert told["device_work"]["verdict"] == "unchanged"


def test_names_from_outside_become_json():
    found = compare(run(TraceBuilder().launch("k\udcff", 0, 5, 10, 100)), run(without()))
    assert "k?" in {f["name"] for f in fields(found)["families"]}


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(recordings())
def test_nothing_differs_from_itself(timeline: Timeline):
    if not len(timeline.device_ops):
        return
    side = run(timeline)
    found = compare(side, side)
    assert found.step.difference in (0, None)
    for c in (*found.kinds, *found.families, *found.calls, *found.ops):
        assert (c.state, c.in_all, c.ns_a) == (State.SAME, 0, c.ns_b)
    assert sum(c.count_a for c in found.kinds) == len(timeline.device_ops)
    assert sum(c.count_a for c in found.families) == len(timeline.device_ops)
    assert sum(c.count_a for c in found.calls) == len(timeline.host_calls)
    for change in (*found.reads, *found.findings):
        assert change.a is not None or change.b is not None
    assert found.device_work.verdict in (Verdict.UNCHANGED, Verdict.NOT_KNOWN)


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Comparison)])
def test_json_holds_every_field(field):
    told = fields(compare(run(with_read()), run(without())))
    assert {"ops": "framework_ops"}.get(field, field) in told
