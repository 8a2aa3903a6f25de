"""Bytes that a step of the slice must read, counted by hand from the published shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="shapes are counted on torch's meta device")

from bubblescope.targets.sglang.floor import step_bytes
from bubblescope.targets.sglang.settings import SLICE, Settings

H, HEADS, INNER, VOCABULARY = 2560, 8, 8 * 128, 39_296
KDA = 2 * (3 * INNER * H + INNER * H + HEADS * H + INNER * H + 128 + H * INNER)
"""q, k, v; decay; beta; output gate; norm; output. bf16."""
KDA_FP32 = 4 * (3 * INNER * 4 + HEADS + INNER + HEADS * 128 * 128)
"""Convolution, A, dt and the state."""
MLA = 2 * (HEADS * 192 * H + 576 * H + 512 + 2 * HEADS * 128 * 512 + HEADS * H + H * INNER)
EXPERT = 2 * 3 * H * 192
NORMS = 2 * 2 * H
DENSE = 2 * 3 * H * 1536
MOE = 2 * 512 * H + 4 * 512 + EXPERT
"""Gate, counted in bf16; bias; the shared expert."""
HEAD = 2 * (H + VOCABULARY * H)
DRAFT = MLA + NORMS + MOE + 8 * EXPERT + 2 * (2 * H + 2 * H * H) + HEAD


def settings(model: str | None = None, engine: tuple[str, ...] = ()) -> Settings:
    return Settings.of(model, None, engine, None)


def verify(experts: float) -> float:
    layers = 35 * (KDA + KDA_FP32) + 7 * MLA + 42 * NORMS
    return layers + 2 * DENSE + 40 * (MOE + experts * EXPERT) + HEAD


def test_the_slice_with_five_drafts() -> None:
    assert step_bytes(settings(), 20.5) == verify(20.5) + 5 * DRAFT


def test_without_speculation_nothing_is_drafted() -> None:
    plain = settings(engine=("speculative_algorithm=null",))
    assert step_bytes(plain, 8) == verify(8)


def test_a_model_of_another_kind_has_none(tmp_path: Path) -> None:
    told = json.loads((SLICE / "config.json").read_text()) | {"architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(told))
    assert step_bytes(settings(str(tmp_path)), 8) is None
    assert step_bytes(settings("org/a-model-by-its-name"), 8) is None
