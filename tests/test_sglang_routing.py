"""The count of distinct experts: its arithmetic, and that nothing of it stays in the engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bubblescope.targets.sglang.routing import Routing, describe, distinct

torch = pytest.importorskip("torch", reason="what routers choose are tensors")

TOPK = "sglang.srt.layers.moe.topk"


@given(
    ids=arrays.arrays(
        np.int32, st.tuples(st.integers(1, 20), st.integers(1, 4)), elements=st.integers(-1, 6)
    ),
    group=st.integers(1, 7),
)
def test_distinct_experts_are_counted_as_sets_are(ids: np.ndarray, group: int) -> None:
    groups = len(ids) // group
    rows = ids[len(ids) - groups * group :]
    expected = [
        len(set(rows[i * group : (i + 1) * group].ravel().tolist()) - {-1}) for i in range(groups)
    ]
    assert distinct(ids, group).tolist() == expected


class TopK(torch.nn.Module):
    def __init__(self, layer_id: int) -> None:
        super().__init__()
        self.layer_id = layer_id


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType(TOPK)
    module.seen = []
    module.capture_routed_experts_if_allowed = lambda *asked: module.seen.append(asked)
    monkeypatch.setitem(sys.modules, TOPK, module)
    runner = SimpleNamespace(
        model=torch.nn.ModuleList([TopK(1), TopK(2)]),
        prefill_cuda_graph_runner="graph",
        model_config=SimpleNamespace(hf_text_config=SimpleNamespace(num_experts=512)),
    )
    scheduler = SimpleNamespace(tp_worker=SimpleNamespace(model_runner=runner))
    return SimpleNamespace(scheduler=scheduler, runner=runner, module=module)


def choose(engine: Any, layer: int, ids: list[list[int]]) -> None:
    """As SGLang does: looked up in the module at each call."""
    config = SimpleNamespace(top_k=3, num_shared_topk_slots=1)
    engine.module.capture_routed_experts_if_allowed(config, layer, torch.tensor(ids))


def test_the_models_own_layers_are_counted_without_the_shared_expert(
    engine: Any, tmp_path: Path
) -> None:
    before = engine.module.capture_routed_experts_if_allowed
    routing = Routing(engine.scheduler, tmp_path, rank=0)
    routing.begin()
    assert engine.runner.prefill_cuda_graph_runner is None
    choose(engine, 1, [[1, 2, 512], [1, 3, 512], [4, 5, 512], [4, 5, 512]])
    choose(engine, 2, [[1, 2], [3, 4], [5, 6], [7, 8]])  # without it, as some kernels give them
    choose(engine, 2, [[0, 0, 512]])  # the draft model's layer of that number
    choose(engine, 9, [[0, 0, 512]])
    routing.end(group=2)
    said = json.loads((tmp_path / "routing-0.json").read_text())
    # Layer 1: {1,2,3} and {4,5}; layer 2: four and four.
    assert said["distinct"] == (2.5 + 4) / 2
    assert (said["most"], said["groups"], said["layers"], said["chosen"]) == (4, 2, 2, 2)
    assert describe(said) == (
        "3.2 of 512 experts a layer for 2 tokens in a row (at most 4; each chooses 2), mean of 2 "
        "layers and 2 groups of what was generated; rejected drafts are not in it"
    )
    assert len(engine.module.seen) == 4
    assert engine.runner.prefill_cuda_graph_runner == "graph"
    assert engine.module.capture_routed_experts_if_allowed is before


def test_a_choice_that_nobody_asked_for_is_not_kept(engine: Any, tmp_path: Path) -> None:
    routing = Routing(engine.scheduler, tmp_path, rank=0)
    choose(engine, 1, [[1, 2, 512]])
    routing.begin()
    routing.end(group=1)
    said = json.loads((tmp_path / "routing-0.json").read_text())
    assert describe(said) == (
        "not known: 0 of 2 routers were seen to choose, and for fewer than 1 tokens"
    )


def test_an_engine_without_what_is_needed_goes_on(engine: Any, tmp_path: Path) -> None:
    del engine.module.capture_routed_experts_if_allowed
    routing = Routing(engine.scheduler, tmp_path, rank=0)
    routing.begin()
    routing.end(group=6)
    assert engine.runner.prefill_cuda_graph_runner == "graph"
    said = json.loads((tmp_path / "routing-0.json").read_text())
    assert describe(said).startswith("not known: AttributeError: ")


def test_one_token_a_step_needs_no_groups() -> None:
    said = {
        "problem": "", "layers": 3, "of": 3, "group": 1, "groups": 9, "distinct": 8.0, "most": 8,
        "chosen": 8, "experts": 512,
    }  # fmt: skip
    assert describe(said) == "8 of 512 experts a layer and token"


def test_a_model_without_routers_says_so(engine: Any, tmp_path: Path) -> None:
    engine.runner.model = torch.nn.Linear(2, 2)
    routing = Routing(engine.scheduler, tmp_path, rank=0)
    routing.begin()
    routing.end(group=6)
    assert describe(json.loads((tmp_path / "routing-0.json").read_text())) == (
        "the model has no router"
    )
