"""Switches of the engine: what is on, what it says of itself, and graphs kept side by side."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubblescope.errors import BubblescopeError
from bubblescope.targets.sglang.changes import CHANGES
from bubblescope.targets.sglang.settings import Settings
from bubblescope.targets.sglang.spread import bound
from bubblescope.targets.sglang.switches import AT_START, SWITCHES
from bubblescope.targets.sglang.target import SGLang
from optimizations.registry import PASSES, applied, get

FAKE = Path(__file__).parent / "fake_sglang"
BEFORE = {
    "PDL": "not allowed",
    "router matvec up to": "0 tokens",
    "align in one launch up to": "0 pairs",
    "top-k": "biased_grouped_topk_impl",
    "gate": "torch.float32",
    "lm_head": "torch.float32",
    "draft-extend graph": "none",
    "KDA verify": "convolution and recurrence apart",
    "metadata glue graph": "off",
    "verify attention": "one program a head",
    "drafts' linear states": "a copy for each",
    "sequence lengths": "read back each step",
}
"""What SGLang did before each fix, from ../shared/sglang/README.md and its pull requests."""


@pytest.fixture(scope="module")
def engine() -> Iterator[SGLang]:
    path = os.pathsep.join(filter(None, [str(FAKE), os.environ.get("PYTHONPATH")]))
    made = SGLang(as_shipped=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        made.start()
    yield made
    made.stop()


@pytest.fixture
def target(engine: SGLang) -> SGLang:
    engine.as_shipped = False
    return engine


def said(target: SGLang) -> dict[str, str]:
    """What the engine said of itself when it was last set."""
    made: dict[str, str] = json.loads((target._engine().folder / "facts-0.json").read_text())
    return made


def test_without_passes_every_fix_is_off(target: SGLang) -> None:
    target.run(3)
    assert said(target) == BEFORE
    assert target.about()["fixes"] == "none"
    assert "KDA verify: convolution and recurrence apart" in target.about()["switches"]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("pdl-chain", {"PDL": "allowed"}),
        (
            "router-moe",
            {
                "router matvec up to": "8 tokens",
                "align in one launch up to": "64 pairs",
                "top-k": "biased_grouped_topk_gpu",
            },
        ),
        ("bf16-gate", {"gate": "torch.bfloat16"}),
        ("bf16-lm-head", {"lm_head": "torch.bfloat16"}),
        ("bf16-heads", {"gate": "torch.bfloat16", "lm_head": "torch.bfloat16"}),
        ("draft-extend-graph", {"draft-extend graph": "captured"}),
        ("staged-kda", {"KDA verify": "convolution and recurrence in one kernel"}),
        ("glue-graph", {"metadata glue graph": "asked for"}),
        ("seq-len-sync", {"sequence lengths": "stay on the device"}),
    ],
)
def test_each_pass_alone_changes_what_it_says_and_leaves_no_trace(
    target: SGLang, name: str, changed: dict[str, str]
) -> None:
    with applied([name], target):
        target.run(3)
        assert said(target) == BEFORE | changed
    target.run(3)
    assert said(target) == BEFORE


def test_a_kernel_of_ours_that_is_never_called_is_refused(target: SGLang) -> None:
    """The stand-in has no attention."""
    with (
        applied(["verify-attention"], target),
        pytest.raises(BubblescopeError, match=r"over the context, and is asked for, and never"),
    ):
        target.run(3)


def test_every_pass_but_the_read_is_a_switch() -> None:
    passes = {entry.name for entry in PASSES if "sglang" in entry.targets}
    assert len(passes) == len(SWITCHES) + 2  # seq-len-sync, and bf16-heads, which is two
    assert set(CHANGES) | AT_START == set(SWITCHES)
    assert set(CHANGES) & AT_START == set()
    assert {entry.name for entry in PASSES if not entry.live} == {"replay-ssm"}
    assert get("bf16-heads").live


def test_as_shipped_with_a_pass_on_the_other_fixes_stay(target: SGLang) -> None:
    target.as_shipped = True
    with applied(["staged-kda"], target):
        target.run(3)
        assert target.about()["fixes"] == (
            "sequence length not read back, pdl, router, bf16 lm_head, draft-extend graph, "
            "fused KDA verify"
        )
    shipped = {
        "PDL": "allowed",
        "router matvec up to": "8 tokens",
        "align in one launch up to": "64 pairs",
        "top-k": "biased_grouped_topk_gpu",
        "lm_head": "torch.bfloat16",
        "draft-extend graph": "captured",
        "sequence lengths": "stay on the device",
    }
    fused = {"KDA verify": "convolution and recurrence in one kernel"}
    assert said(target) == BEFORE | shipped | fused


def test_a_switch_that_does_not_take_hold_is_refused(
    target: SGLang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SWITCHES["pdl"].off, "PDL", "gone")  # type: ignore[arg-type]
    with pytest.raises(BubblescopeError, match=r"PDL should be gone, and is not allowed: SGLang"):
        target.run(3)


def test_spread_weights_keep_the_variance_of_what_they_are_given() -> None:
    # A uniform value within b has the variance b * b / 3; a row of n of them adds up n.
    assert bound("layers.0.attn.q_proj.weight", (8, 2560)) ** 2 / 3 * 2560 == pytest.approx(1)
    assert bound("layers.2.mlp.experts.w13_weight", (513, 384, 2560)) == math.sqrt(3 / 2560)
    # What is added to the residual stream has a 32nd of its deviation.
    assert bound("layers.2.mlp.experts.w2_weight", (513, 2560, 192)) == math.sqrt(3 / 192) / 32
    assert bound("model.word_embeddings.weight", (39296, 2560)) == math.sqrt(3)
    assert bound("layers.0.attn.A_log", (8,)) == 0.1


def test_weights_are_for_models_without_any() -> None:
    assert Settings.of(None, None, (), None).weights == "spread"
    assert Settings.of(None, None, (), None, "dummy").environment() == {
        "BUBBLESCOPE_SGLANG_WEIGHTS": "dummy",
        "HF_HUB_OFFLINE": "1",
        "SGLANG_SIMULATE_ACC_LEN": "3.25",
    }
    assert Settings.of("/models/x", None, (), None).weights == ""
    with pytest.raises(BubblescopeError, match="has weights of its own"):
        Settings.of("/models/x", None, (), None, "spread")


def test_without_speculation_passes_are_refused(target: SGLang) -> None:
    """The last of these: it takes the draft worker away."""
    target._engine().ask(do="call", method="forget_draft_worker", parameters={})
    with (
        applied(["glue-graph"], target),
        pytest.raises(BubblescopeError, match="with EAGLE or NEXTN only"),
    ):
        target.run(3)
