"""How passes reach their switches on either target; kernels are tested where triton is."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import pytest

from bubblescope.errors import BubblescopeError
from bubblescope.predict import parse
from bubblescope.targets.gated import NotOffered
from bubblescope.targets.sglang.switches import SWITCHES
from bubblescope.targets.target import Switch
from optimizations import registry
from optimizations.passes import PassEntry

NAMES = {
    "pdl-chain": {"pdl"},
    "router-moe": {"router"},
    "bf16-gate": {"bf16 gate"},
    "bf16-lm-head": {"bf16 lm_head"},
    "bf16-heads": {"bf16 gate", "bf16 lm_head"},
    "staged-kda": {"fused KDA verify"},
    "draft-extend-graph": {"draft-extend graph"},
    "glue-graph": {"glue graph"},
    "verify-attention": {"split verify attention"},
}


@pytest.mark.parametrize("entry", registry.PASSES, ids=lambda entry: entry.name)
def test_what_a_pass_declares_for_the_prediction_can_be_asked(entry: PassEntry) -> None:
    for text in entry.models:
        assert parse(text) is not None


@pytest.mark.parametrize("name", NAMES)
def test_on_sglang_it_is_a_switch_of_the_target(name: str) -> None:
    target = SimpleNamespace(name="sglang", switches={n: Switch() for n in SWITCHES})

    def on() -> set[str]:
        return {n for n, switch in target.switches.items() if switch}

    with registry.applied([name], target):
        assert on() == NAMES[name]
    assert on() == set()


@pytest.mark.parametrize(
    "name", ["pdl-chain", "router-moe", "bf16-gate", "bf16-lm-head", "bf16-heads", "staged-kda"]
)
def test_on_a_device_without_kernels_it_is_not_offered(name: str) -> None:
    pytest.importorskip("torch")
    from bubblescope.targets.ling.target import Ling

    with (
        pytest.raises(NotOffered, match="the CPU stream thread runs torch's operations only"),
        registry.applied([name], Ling("cpu")),
    ):
        pass


def test_without_triton_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    for module in [m for m in sys.modules if m.startswith("optimizations.kernels")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(BubblescopeError, match="need triton; pip install 'bubblescope"):
        put_on("router-moe", SimpleNamespace(name="ling", parts=Allowed()))


class Allowed:
    """Parts of a loop whose device runs kernels."""

    def check(self) -> None:
        pass


def put_on(name: str, target: Any) -> AbstractContextManager[None]:
    return registry.get(name).applied(target)
