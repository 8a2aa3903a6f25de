"""The pass protocol, on a target made for the purpose."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import combinations, permutations
from types import SimpleNamespace
from typing import Any

import pytest

from bubblescope.errors import BubblescopeError
from bubblescope.targets.target import Switch
from optimizations import registry
from optimizations.passes import PassEntry
from optimizations.seq_len_sync import SeqLenSync


@dataclass(frozen=True, slots=True)
class Flip(PassEntry):
    """Turns the switch of its own name on."""

    def applied(self, target: Any) -> AbstractContextManager[None]:
        on: AbstractContextManager[None] = getattr(target, self.name).on()
        return on


NAMES = ("a", "b", "c")


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(registry, "PASSES", [Flip(n, "", (), ("toy",)) for n in NAMES])
    return SimpleNamespace(name="toy", **{n: Switch() for n in NAMES})


def on(target: Any) -> set[str]:
    return {n for n in NAMES if getattr(target, n)}


def test_any_subset_in_any_order_leaves_no_trace(target: Any) -> None:
    for size in range(len(NAMES) + 1):
        for chosen in combinations(NAMES, size):
            for order in permutations(chosen):
                with registry.applied(order, target):
                    assert on(target) == set(chosen)
                assert on(target) == set()


def test_put_on_and_taken_off_in_orders_that_do_not_nest(target: Any) -> None:
    first, second = registry.applied(["a"], target), registry.applied(["a", "b"], target)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert on(target) == {"a", "b"}
    second.__exit__(None, None, None)
    assert on(target) == set()


def test_an_error_inside_takes_the_pass_off(target: Any) -> None:
    with pytest.raises(ZeroDivisionError), registry.applied(["a", "a"], target):
        raise ZeroDivisionError
    assert on(target) == set()


def test_a_pass_that_there_is_not(target: Any) -> None:
    with pytest.raises(BubblescopeError, match="no pass 'd'; there are: a, b, c"):
        registry.get("d")
    with (
        pytest.raises(BubblescopeError, match="no pass 'd'"),
        registry.applied(["a", "d"], target),
    ):
        pass
    assert on(target) == set()


def test_a_pass_for_another_target(target: Any) -> None:
    target.name = "sglang"
    with (
        pytest.raises(BubblescopeError, match="pass a: not made for target sglang, only for toy"),
        registry.applied(["a"], target),
    ):
        pass


def test_what_the_registry_lists() -> None:
    assert [p.name for p in registry.PASSES] == [
        "seq-len-sync",
        "draft-extend-graph",
        "pdl-chain",
        "router-moe",
        "bf16-heads",
        "bf16-gate",
        "bf16-lm-head",
        "staged-kda",
        "glue-graph",
        "verify-attention",
        "replay-ssm",
    ]
    entry = registry.get("seq-len-sync")
    assert isinstance(entry, SeqLenSync)
    assert entry.targets == ("ling", "sglang")
    assert entry.keeps_bits
    assert entry.needs == ()
    assert entry.summary.endswith(".")
    assert registry.passes_for("blocking read", "cpuStreamSynchronize") == ("seq-len-sync",)
    assert registry.passes_for("blocking read", "cpuEventSynchronize") == ()
    cuda = "blocking read", "cudaStreamSynchronize"
    assert registry.passes_for(*cuda, "/x/targets/ling/scheduler.py") == ("seq-len-sync",)
    of_sglang = "/x/sglang/srt/managers/overlap_utils.py"
    assert registry.passes_for(*cuda, of_sglang) == ("seq-len-sync",)
    assert registry.passes_for(*cuda, "/x/overlap_utils.py") == registry.passes_for(*cuda) == ()
    assert registry.passes_for("host gap", "cpuStreamSynchronize") == ()
