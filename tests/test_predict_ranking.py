"""What findings would save, in loops of which it is known, and the order that follows."""

from __future__ import annotations

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Diagnosis
from bubblescope.predict import cut, parse, predict
from bubblescope.predict.ranking import ranked, savings
from bubblescope.timeline import Timeline
from tests.machine import Instruction, recorded
from tests.synthetic import TraceBuilder
from tests.test_predict_pair import LOOP, SGLANG, SGLANG_WITHOUT, recording
from tests.test_predict_truth import DEVICE_BOUND, GRAPHS, HOST_BOUND, READ_BOUND


def saved(timeline: Timeline) -> dict[tuple[str, bool], int | None]:
    found = ranked(timeline, diagnose(timeline)).findings
    return {(f.kind, f.ranked): f.predicted_saving_ns_per_step for f in found}


def test_a_read_saves_what_a_replay_without_it_does() -> None:
    timeline = recorded(READ_BOUND)
    made = predict(timeline, [parse("read:cudaStreamSynchronize")])
    assert saved(timeline)["blocking read", True] == made.saving_ns == 34_200
    # Its exposed idle, for comparison, is less: without it the launches are early, too.
    (read,) = diagnose(timeline).reads
    assert read.exposed_idle_ns_per_step == 33_000


def test_idle_in_front_of_a_late_host_saves_nothing() -> None:
    # A step: kernels until 22.8 us, launch at 98, kernel from 104.5 to 107.5, next launch at 122.
    # So 75.2 and 14.5 us of host gap, two launch calls of 4 us, and the host does without all.
    found = saved(recorded(HOST_BOUND))
    assert found == {
        ("host gap", True): 89_700,
        ("launch call", True): 8_000,
        ("launch latency", True): 0,
        ("device gap", True): 0,
    }


def test_gaps_of_a_busy_device_save_all_they_take() -> None:
    assert saved(recorded(DEVICE_BOUND)) == {("device gap", True): 3 * 1_300}


def test_each_part_of_a_read_bound_step() -> None:
    assert saved(recorded(READ_BOUND)) == {
        ("blocking read", True): 34_200,
        ("host gap", True): 25_000,
        ("launch call", True): 4_000,
        ("device gap", True): 2_600,
        ("launch latency", True): 2_500,
    }


def test_findings_are_ranked_by_what_they_save() -> None:
    diagnosis = ranked(recorded(HOST_BOUND), diagnose(recorded(HOST_BOUND)))
    values = [f.predicted_saving_ns_per_step for f in diagnosis.findings if f.ranked]
    assert values == sorted(values, key=lambda v: -(v or 0))


@pytest.mark.parametrize("name", [SGLANG, SGLANG_WITHOUT, LOOP])
def test_what_only_node_level_shows_stays_last(name: str) -> None:
    before = diagnose(recording(name))
    after = ranked(recording(name), before)
    flags = [f.ranked for f in after.findings]
    assert flags == sorted(flags, reverse=True)
    assert {f.title for f in after.findings} == {f.title for f in before.findings}


def test_the_order_of_the_sglang_recordings() -> None:
    (first, second, *_) = ranked(recording(SGLANG), diagnose(recording(SGLANG))).findings
    assert (first.kind, second.kind, second.call) == (
        "host gap",
        "blocking read",
        "cudaStreamSynchronize",
    )
    # In the recording without the read, the pauses between kernels are the second largest idle,
    # and worth nothing: the host is late either way.
    before = diagnose(recording(SGLANG_WITHOUT))
    after = ranked(recording(SGLANG_WITHOUT), before)
    assert [f.kind for f in before.findings][:2] == ["host gap", "device gap"]
    gap = next(f for f in after.findings if f.kind == "device gap")
    assert gap.predicted_saving_ns_per_step is not None
    assert abs(gap.predicted_saving_ns_per_step) < 1_000
    assert after.findings.index(gap) > 1


@pytest.mark.parametrize("loop", [HOST_BOUND, DEVICE_BOUND, READ_BOUND, GRAPHS])
def test_a_few_steps_of_many_say_the_same(loop: list[Instruction]) -> None:
    timeline = recorded(loop, steps=60)
    diagnosis = diagnose(timeline)
    excerpt = cut.middle(timeline, diagnosis)
    assert excerpt is not None
    assert excerpt.steps.counted().sum() == cut.STEPS
    assert len(excerpt.timeline.device_ops) < len(timeline.device_ops) / 3
    few = recorded(loop, steps=12)
    assert savings(timeline, diagnosis) == savings(few, diagnose(few))


def test_without_steps_nothing_is_predicted_and_the_order_stays() -> None:
    trace = TraceBuilder()
    trace.launch("a", at=0, dur=10, start=20, run=50).launch("b", at=500, dur=10, start=515, run=50)
    timeline = trace.timeline()
    before: Diagnosis = diagnose(timeline)
    assert not before.steps.counted().any()
    after = ranked(timeline, before)
    assert after.findings == before.findings
    assert all(f.predicted_saving_ns_per_step is None for f in after.findings)
