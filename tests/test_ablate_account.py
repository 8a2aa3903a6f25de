"""What a recording beside the timed rounds says of a step, and the prediction made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubblescope.ablate.account import account, predict_savings
from bubblescope.ablate.plan import Rung, rungs
from bubblescope.ingest import load
from bubblescope.timeline import Timeline
from tests.synthetic import TraceBuilder

TRACES = Path(__file__).parents[1] / "traces"


def loop(steps: int = 8) -> Timeline:
    """Steps of 2,000 ns: a graph of two nodes with 50 between, a kernel at once after it, 700 idle.

    One read a step, which returns with the kernel.
    """
    trace = TraceBuilder()
    for k in range(steps):
        at = 2_000 * k
        trace.step(k, at=at, dur=1_900)
        trace.graph(at + 10, 40, [("a", at + 100, 450), ("b", at + 600, 300)])
        trace.launch("c", at=at + 60, dur=20, start=at + 900, run=500)
        trace.sync(at=at + 100, dur=1_310)
    return trace.timeline()


def test_idle_reads_and_launches_of_a_step() -> None:
    found = account(3, loop(), (2, 6))
    assert (found.rung, found.step_ns) == (3, 2_000)
    assert found.idle_ns == 50 + 700
    assert found.reads == 1
    assert found.launches == 2  # the graph's nodes share one
    assert found.why == ""


def test_where_too_much_is_unknown_idle_has_no_figure() -> None:
    trace = TraceBuilder()
    for k in range(8):
        at = 2_000 * k
        trace.step(k, at=at, dur=1_900)
        trace.launch("a", at=at + 10, dur=40, start=at + 100, run=450)
        trace.orphan("b", start=at + 900, run=500)  # who launched it, and so what for, is not known
    found = account(0, trace.timeline(), (2, 6))
    assert found.idle_ns is None


def ladder(*passes: str) -> tuple[Rung, ...]:
    return rungs([(p,) for p in passes], "cumulative")


@pytest.mark.parametrize(
    ("name", "why"),
    [("seq-len-sync", "no such blocking read"), ("router-moe", "router-moe: declares no model")],
)
def test_nothing_is_predicted_where_there_is_no_model_or_no_such_read(name: str, why: str) -> None:
    (found,) = predict_savings(0, loop(), (2, 6), ladder(name))
    assert (found.rung, found.of, found.saving_ns) == (1, 0, None)
    assert why in found.why


def test_a_row_is_predicted_from_the_row_above_by_what_it_adds() -> None:
    """The read would have to be found in the baseline; in the row above it is gone."""
    planned = ladder("seq-len-sync", "pdl-chain", "router-moe")
    from_none = predict_savings(0, loop(), (2, 6), planned)
    assert [(p.rung, p.of) for p in from_none] == [(1, 0), (2, 0), (3, 0)]
    (found,) = predict_savings(1, loop(), (2, 6), planned)
    assert (found.rung, found.of, found.why) == (2, 1, "")
    assert [p.rung for p in predict_savings(2, loop(), (2, 6), planned)] == [3]
    left_out = rungs([("seq-len-sync",), ("pdl-chain",)], "leave-one-out")
    assert predict_savings(1, loop(), (2, 6), left_out) == []


def test_the_sglang_recording_predicts_the_pass_from_the_baseline_alone() -> None:
    """The twin without the read takes 7,504 us; the read exposes 829 us of 8,690."""
    timeline = load(TRACES / "ling3-h200-seqlen-sync.bscope")
    (found,) = predict_savings(0, timeline, (0, 9), ladder("seq-len-sync"))
    assert found.saving_ns is not None
    assert 8_690_000 - found.saving_ns == pytest.approx(7_504_000, rel=0.06)


def test_the_loop_on_an_h200_counts_its_launches() -> None:
    path = TRACES / "ling3-loop-h200.bscope"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    found = account(0, load(path), (200, 210))
    assert (found.reads, found.launches) == (2, 8)
