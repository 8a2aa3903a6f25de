"""Passes that SGLang decides before it starts: what it is started with, and when it is anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bubblescope.ablate.setup import begin
from bubblescope.errors import BubblescopeError
from bubblescope.targets.sglang.gated import GatedSGLang
from bubblescope.targets.sglang.starting import arguments
from bubblescope.targets.sglang.target import SGLang
from optimizations.registry import applied, get
from tests.sglang_fake import TESTS, installed

REPLAY = frozenset({"linear-state replay"})
STATES = "drafts' linear states"


@pytest.fixture(autouse=True)
def _fake() -> Iterator[None]:
    with installed():
        yield


@pytest.mark.parametrize(
    ("given", "length"),
    [
        ({"speculative_num_draft_tokens": 6}, 16),
        ({"speculative_num_draft_tokens": 8}, 16),
        ({"speculative_num_draft_tokens": 9}, 32),  # as SGLang's cookbook has it for DSpark
        ({"speculative_num_steps": 8}, 32),
        ({}, 16),
        ({"speculative_num_draft_tokens": 6, "linear_replayssm_cache_len": 64}, 64),
    ],
)
def test_the_ring_holds_a_power_of_two_of_twice_the_drafts(
    given: dict[str, int], length: int
) -> None:
    made = arguments(given, REPLAY)
    assert made["enable_linear_replayssm_spec"] is True
    assert made["linear_replayssm_cache_len"] == length
    assert arguments(given, frozenset({"pdl"})) == given


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (("speculative_algorithm=null",), "needs speculation"),
        (("speculative_eagle_topk=4",), "drafts in a chain"),
        (("speculative_algorithm=ngram",), "NGRAM makes a tree"),
        (("linear_attn_backend=helion",), "of triton, not helion"),
        (("linear_attn_verify_backend=flashinfer",), "of triton, not flashinfer"),
        (("enable_linear_replayssm=true",), "cannot go with enable_linear_replayssm"),
        (("linear_replayssm_cache_len=24",), "a power of two for linear_replayssm_cache_len"),
        (("linear_replayssm_cache_len=8",), "at least twice the 6 tokens"),
    ],
)
def test_where_sglang_cannot_it_is_refused_before_the_start(
    engine: tuple[str, ...], said: str
) -> None:
    target = SGLang(engine=engine)
    with (
        pytest.raises(BubblescopeError, match=f"^pass replay-ssm: .*{said}"),
        applied(["replay-ssm"], target),
    ):
        pass
    assert not target.switches["linear-state replay"]


def test_the_engine_is_started_with_it_and_says_so() -> None:
    target = SGLang(as_shipped=False)
    with applied(["replay-ssm"], target):
        target.start()
        try:
            target.run(3)
            assert target._facts[STATES] == "replayed from raw inputs"
            assert target.about()["fixes"] == "linear-state replay"
        finally:
            target.stop()


def test_an_engine_without_it_cannot_be_given_it() -> None:
    target = SGLang(as_shipped=False)
    target.start()
    try:
        target.run(3)
        assert target._facts[STATES] == "a copy for each"
        with (
            applied(["replay-ssm"], target),
            pytest.raises(BubblescopeError, match=r"before the engine starts.*stop it first"),
        ):
            target.run(3)
        assert len(target.run(3).began) == 4
    finally:
        target.stop()


def test_a_model_without_such_states_is_refused_by_name() -> None:
    target = SGLang(engine=('model="without routers"',))
    with applied(["replay-ssm"], target):
        target.start()
        try:
            with pytest.raises(BubblescopeError, match="'linear-state replay' cannot be switched"):
                target.run(3)
        finally:
            target.stop()


def test_gates_start_another_engine_for_each_side() -> None:
    gated = SGLang().gated()
    assert isinstance(gated, GatedSGLang)
    try:
        gated._speculating()._prepare(0.0)
        without = gated._link
        with applied(["staged-kda"], gated):  # a switch of a running engine
            gated._speculating()._prepare(0.0)
            assert gated._link is without
        assert gated._facts[STATES] == "a copy for each"
        with applied(["replay-ssm"], gated):
            gated._speculating()._prepare(0.0)
            assert gated._link is not without
            assert gated._facts[STATES] == "replayed from raw inputs"
            gated.start()  # what is timed after the gates is what was checked
            assert gated._started_with["enable_linear_replayssm_spec"] is True
        gated.start()
        assert "enable_linear_replayssm_spec" not in gated._started_with
        assert len(gated.run(3).began) == 4
    finally:
        gated.stop()


def test_an_engine_that_a_pass_broke_is_not_used_for_the_next_one() -> None:
    gated = SGLang().gated()
    assert isinstance(gated, GatedSGLang)
    try:
        broken = gated._speculating()._engine()
        with pytest.raises(BubblescopeError, match="the scheduler ended with 9") as raised:
            gated._call("die", {}, lambda *_: None)
        Path(str(raised.value).rpartition("its log: ")[2]).unlink()
        assert gated._speculating()._engine() is not broken
        assert len(gated.run(3).began) == 4
    finally:
        gated.stop()


def test_it_is_a_row_of_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS / "fake_sglang"))
    groups = [("seq-len-sync",), ("staged-kda",), ("replay-ssm",)]
    made = begin("sglang", {}, groups, "cumulative", {})
    assert made.plan.groups == ((0, 1, 2), (3,))
    assert not get("replay-ssm").live


def test_the_engine_without_speculation_is_started_without_it() -> None:
    target = SGLang(engine=("enable_linear_replayssm_spec=true", "linear_replayssm_cache_len=32"))
    plain = target.settings.without_speculation(0.45).arguments
    assert [name for name in plain if "replayssm" in name] == []
