"""From options to a plan, and from a file to the rest of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bubblescope.ablate.ablation import left_out
from bubblescope.ablate.plan import Plan
from bubblescope.ablate.samples import Samples, save
from bubblescope.ablate.setup import begin, go_on
from bubblescope.errors import BubblescopeError

SHAPE = {"starts": None, "rounds": None, "steps": None}
NO_KERNELS = "target ling: the CPU stream thread runs torch's operations only, no Triton kernels"


def test_defaults_are_what_can_be_put_on_the_target_and_what_the_design_asks_for() -> None:
    found = begin("ling", {"device": "cpu"}, None, "cumulative", SHAPE)
    assert [rung.passes for rung in found.plan.rungs] == [(), ("seq-len-sync",)]
    # bf16-heads is made of bf16-gate and bf16-lm-head, which are not named beside it.
    assert found.left_out == dict.fromkeys(
        ["pdl-chain", "router-moe", "bf16-heads", "staged-kda"], NO_KERNELS
    )
    assert left_out(found) == [
        f"not measured: pdl-chain, router-moe, bf16-heads, staged-kda ({NO_KERNELS})"
    ]
    assert (found.plan.starts, found.plan.rounds, found.plan.steps) == (3, 5, 200)
    assert found.options == {"device": "cpu"}
    assert found.rounds == []


def test_seq_len_sync_is_live_so_that_all_share_a_start() -> None:
    found = begin("ling", {}, [("seq-len-sync",)], "alone", SHAPE)
    assert found.plan.groups == ((0, 1),)


@pytest.mark.parametrize(
    ("target", "passes", "said"),
    [
        ("nope", None, "no target 'nope'; there are: ling, sglang"),
        ("ling", [("nope",)], "no pass 'nope'; there are:"),
        ("ling", [], "no pass to measure"),
        ("ling", [("no.such:Pass",)], "pass no.such:Pass: No module named 'no'"),
        ("ling", [("json:JSONDecoder",)], "is not a subclass of"),
        ("ling", [("optimizations.passes:PassEntry",)], "cannot be made without arguments"),
    ],
)
def test_what_cannot_be_planned(target: str, passes: Any, said: str) -> None:
    with pytest.raises(BubblescopeError, match=said):
        begin(target, {}, passes, "cumulative", SHAPE)


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    path = tmp_path / "x.json"
    save(begin("ling", {"device": "cpu"}, [("seq-len-sync",)], "alone", SHAPE), path)
    return path


def resumed(path: Path, **given: Any) -> Samples:
    named: dict[str, Any] = {"target": None, "options": {}, "passes": None, "ladder": None}
    return go_on(path, **(named | {"shape": SHAPE} | given))


def test_without_options_the_plan_is_the_file_s(planned: Path) -> None:
    plan = resumed(planned).plan
    assert isinstance(plan, Plan)
    assert (plan.ladder, plan.starts, plan.rounds, plan.steps) == ("alone", 3, 5, 200)


def test_the_same_options_again_are_no_other_plan(planned: Path) -> None:
    given = {"options": {"device": "cpu"}, "passes": [("seq-len-sync",)], "ladder": "alone"}
    shape = {"starts": 3, "rounds": 5, "steps": 200}
    assert resumed(planned, target="ling", shape=shape, **given) == resumed(planned)


def test_starts_may_be_added(planned: Path) -> None:
    more = resumed(planned, shape=SHAPE | {"starts": 6})
    assert more.plan.starts == 6
    assert more.missing(5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "sglang"}, "planned with --target ling, not sglang; leave it out"),
        ({"options": {"device": "cuda"}}, "planned with --device cpu, not cuda"),
        ({"options": {"accept_length": 2}}, "planned with --accept-length not given, not 2"),
        ({"ladder": "cumulative"}, "planned with --ladder alone, not cumulative"),
        ({"passes": [("other",)]}, r"other --passes \(none, seq-len-sync\)"),
        ({"shape": SHAPE | {"rounds": 7}}, "planned with --rounds 5, not 7"),
        ({"shape": SHAPE | {"steps": 10}}, "planned with --steps 200, not 10"),
        ({"shape": SHAPE | {"starts": 2}}, "planned with 3 starts; --starts can add to them only"),
    ],
)
def test_another_plan_is_refused(given: dict[str, Any], said: str, planned: Path) -> None:
    with pytest.raises(BubblescopeError, match=said):
        resumed(planned, **given)
