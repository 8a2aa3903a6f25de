"""Prefill told from decode: by the names of steps, by their kernels, and in cycles."""

from __future__ import annotations

import numpy as np
import pytest

from bubblescope.diagnose import cycles, diagnose
from bubblescope.diagnose.model import Diagnosis, Phase
from bubblescope.diagnose.phases import series, stated
from bubblescope.ingest import load
from tests.corpus import need
from tests.synthetic import TraceBuilder

DECODE, PREFILL, OTHER, NOT_TOLD = Phase.DECODE, Phase.PREFILL, Phase.OTHER, Phase.NOT_TOLD


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("step[DECODE bs=32]", DECODE),
        ("step[VERIFY bs=1]", DECODE),
        ("step[DRAFT_EXTEND bs=1 toks=4]", DECODE),
        ("step[EXTEND bs=15 toks=15360]", PREFILL),
        ("step[MIXED bs=4 toks=900]", PREFILL),
        ("step[IDLE bs=0]", NOT_TOLD),
        ("execute_context_1(888_788544)_generation_0(0)", PREFILL),
        ("execute_32_context_0(sq0sk0)_generation_32(sq32sk32785)", DECODE),
        ("execute_8192_context_9(sq8155)_generation_37(sq37)", PREFILL),
        ("[Executor] _forward_step 12: 0 ctx reqs, 8 gen reqs", DECODE),
        ("[Executor] _forward_step 12: 1 ctx reqs, 512 ctx tokens, 31 gen reqs", PREFILL),
        ("prefill", PREFILL),
        ("decode 12", DECODE),
        ("prefill+decode", NOT_TOLD),
        ("decoder", NOT_TOLD),
        ("step", NOT_TOLD),
        ("scheduler.run_batch", NOT_TOLD),
        ("step[3]", NOT_TOLD),
    ],
)
def test_what_a_name_states(name: str, phase: Phase) -> None:
    assert stated(name) is phase


def test_steps_of_one_engine_are_one_series() -> None:
    assert series("step[DECODE bs=32]") == series("step[EXTEND bs=15 toks=15360]")
    assert series("decode 12") == series("decode 13") != series("prefill 13")


def step(trace: TraceBuilder, at: int, name: str, prefill: bool) -> int:
    """A decode step of 1,000 with a kernel of 300, or a prefill of 5,000 with one of 4,300."""
    long = 5_000 if prefill else 1_000
    trace.range("annotation", name, at, long - 100)
    kernel = ("flash_prefill", 4_300) if prefill else ("decode_attention", 300)
    trace.launch(kernel[0], at=at + 100, dur=10, start=at + 200, run=kernel[1])
    trace.launch("sample", at=at + 120, dur=10, start=at + 210 + kernel[1], run=20)
    return at + long


def engine(*prefills: int, names: tuple[str, str] | None) -> Diagnosis:
    """Ten steps of which some are prefills; names of a decode step and of a prefill."""
    trace, at = TraceBuilder(), 0
    for k in range(10):
        is_prefill = k in prefills
        at = step(trace, at, names[is_prefill] if names else "step", is_prefill)
    return diagnose(trace.timeline())


def test_prefills_are_in_no_median_of_decode() -> None:
    d = engine(0, 4, 7, names=("step[DECODE bs=1]", "step[EXTEND bs=1 toks=900]"))
    assert d.marker == "step[...]"
    assert d.steps.phase.tolist() == [PREFILL if k in (0, 4, 7) else DECODE for k in range(10)]
    assert d.steps.counted().tolist() == [k not in (0, 4, 7) for k in range(10)]
    assert set(d.steps.length_ns[d.steps.counted()].tolist()) == {1_000}


def test_a_recording_of_prefills_only_counts_them() -> None:
    d = engine(*range(10), names=("", "step[EXTEND bs=1 toks=900]"))
    assert d.marker == "step[EXTEND bs=1 toks=900]"
    assert d.steps.counted().sum() == 9  # all but the first, whose beginning was not recorded


def test_annotations_inside_the_marker_tell_its_phase() -> None:
    trace, at = TraceBuilder(), 0
    for k in range(8):
        trace.range("annotation", "run_batch", at, 950 if k != 3 else 4_950)
        at = step(trace, at, f"step[{'EXTEND' if k == 3 else 'VERIFY'} bs=1]", k == 3)
    d = diagnose(trace.timeline(), marker="run_batch")
    assert d.steps.phase.tolist() == [DECODE] * 3 + [PREFILL] + [DECODE] * 4


def test_an_annotation_around_the_whole_loop_tells_nothing_of_a_step() -> None:
    trace, at = TraceBuilder().range("annotation", "decode", 0, 8_000), 0
    for _ in range(8):
        trace.graph(at=at + 50, dur=10, nodes=[("a", at + 100, 50), ("b", at + 160, 50)], graph=1)
        at += 1_000
    d = diagnose(trace.timeline())
    assert d.marker == "graph of 2 operations"
    assert not d.steps.phase.any()
    assert int(d.steps.counted().sum()) == 7  # the first one's beginning was not recorded


def test_where_no_name_tells_kernels_do() -> None:
    d = engine(4, names=None)
    assert d.steps.phase.tolist() == [OTHER if k == 4 else NOT_TOLD for k in range(10)]
    assert not d.steps.counted()[4]


def test_a_step_with_another_small_kernel_is_one_of_them() -> None:
    trace, at = TraceBuilder(), 0
    for k in range(8):
        if k == 5:
            trace.launch("odd", at=at + 90, dur=5, start=at + 100, run=99)
        at = step(trace, at, "step", False)
    phases = diagnose(trace.timeline()).steps.phase
    assert not phases.any()


def test_few_steps_tell_nothing_of_each_other() -> None:
    trace, at = TraceBuilder(), 0
    for k in range(4):
        at = step(trace, at, "step", k == 1)
    assert not diagnose(trace.timeline()).steps.phase.any()


# Cycles ---------------------------------------------------------------------------------------


def test_cycles_are_counted_on_after_what_does_not_repeat() -> None:
    one, other = [1, 2, 2, 3], [7, 8, 8, 8, 8, 3]
    names = np.array(one * 3 + other + one * 3, np.int32)
    # The step with "other" in it begins at 8 or 12: 1 occurs once a cycle, and not in "other".
    assert cycles.begins(names, 4, 0).tolist() == [0, 4, 8, 18, 22, 26]
    # From 3 on, the beginning is what occurs once a cycle, in "other" too.
    assert cycles.begins(names, 4, 3).tolist() == [3, 7, 11, 17, 21, 25, 29]


def test_the_stretch_without_a_flaw() -> None:
    names = np.array([7, 8, 9] + [1, 2, 3] * 4, np.int32)
    assert cycles.regular(names, 3) == slice(3, 15)
    assert cycles.regular(np.arange(6, dtype=np.int32), 3) == slice(0, 6)


def decode_loop(prefill: bool) -> TraceBuilder:
    """Eager steps of two layers and a read-back, without any annotation, after a prefill."""
    trace, at = TraceBuilder(), 0

    def kernels(names: list[str], run: int) -> None:
        nonlocal at
        for name in names:
            trace.launch(name, at=at, dur=5, start=at + 10, run=run)
            at += run + 12
        trace.copy("DtoH", at=at, dur=40, start=at + 10, run=20)
        at += 500

    if prefill:
        kernels(["embed", *["norm_p", "gemm_p", "attention_p", "gate_p"] * 2, "sample"], 3_000)
    for _ in range(6):
        kernels(["embed", *["norm", "gemm", "attention"] * 2, "sample"], 100)
    return trace


@pytest.mark.parametrize("prefill", [False, True])
def test_a_prefill_before_decode_steps_without_any_marker(prefill: bool) -> None:
    d = diagnose(decode_loop(prefill).timeline())
    assert d.marker == "cycle of 9 operations"
    counted = d.steps.length_ns[d.steps.counted()]
    # 8 kernels, each 112 after the one before, and 500 from the launch of the copy on.
    assert set(counted.tolist()) == {8 * 112 + 500}
    phases = d.steps.phase.tolist()
    assert phases == ([OTHER] if prefill else [NOT_TOLD]) + [NOT_TOLD] * 5 + [NOT_TOLD] * prefill


# Recordings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "phase", "steps"),
    [
        ("tl_b200_eager", PREFILL, 1),
        ("tl_mi300_vllm_piecewise", PREFILL, 1),
        ("tl_mi300_sglang_decode", DECODE, 0),
        ("tl_mi300_sglang_prefill_decode", PREFILL, 0),
        ("sglang_ling3_h200_nextn_seqlen_sync", DECODE, 9),
    ],
)
def test_engines_say_what_their_steps_are(file: str, phase: Phase, steps: int) -> None:
    # By the INDEX and the annotations in the files: the first four hold one step each, which was
    # recorded whole in two of them; the last ten, of which the first is cut.
    d = diagnose(load(need(f"traces/{file}.json.gz")))
    assert int(d.steps.whole.sum()) == steps
    assert set(d.steps.phase[d.steps.number >= 0].tolist()) == {phase}
