"""Whether a replayed KDA state has the bits of a copied one: SGLang's own kernels, without a GPU.

    .venv-sglang/bin/python benchmarks/sglang_replay_bits.py

Runs the verify of release 0.5.23 in Triton's interpreter, once with a copy of the state after each
draft and once with the ring of raw inputs, and replays what was accepted. docs/sglang.md has how to
install SGLang for it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from tests.sglang_real import Stubs

DRAFTS, HEADS, WIDTH, RING = 6, 2, 128, 16
SLOT = 1


def fold(folder: Path) -> Any:
    """SGLang's module that replays; the interpreter counts in Python's numbers without `.to`."""
    found = importlib.util.find_spec("sglang.kernels.ops.attention.linear")
    assert found is not None
    assert found.submodule_search_locations is not None
    source = Path(found.submodule_search_locations[0]) / "kda_replayssm_spec_decode.py"
    text = source.read_text(encoding="utf-8")
    assert text.count("t.to(tl.int64)") == 1
    path = folder / "fold.py"
    path.write_text(text.replace("t.to(tl.int64)", "t"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("fold", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(folder: Path) -> None:
    """Print one line for the outputs, and one for each number of accepted tokens."""
    sys.meta_path.insert(0, Stubs())
    from sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent import (
        fused_sigmoid_gating_delta_rule_update as verify,
    )

    torch.manual_seed(0)
    bf16 = torch.bfloat16
    q, k, v = (torch.randn(1, DRAFTS, HEADS, WIDTH).to(bf16) for _ in range(3))
    states = torch.randn(SLOT + 2, HEADS, WIDTH, WIDTH)
    slot = torch.tensor([SLOT], dtype=torch.int32)
    given: dict[str, Any] = {
        "A_log": torch.rand(HEADS),
        "a": torch.randn(1, DRAFTS, HEADS * WIDTH).to(bf16),
        "dt_bias": torch.rand(HEADS * WIDTH),
        "softplus_beta": 1.0,
        "softplus_threshold": 20.0,
        "q": q,
        "k": k,
        "v": v,
        "b": torch.randn(1, DRAFTS, HEADS).to(bf16),
        "initial_state_source": states,
        "initial_state_indices": slot,
        "use_qk_l2norm_in_kernel": True,
        "cu_seqlens": torch.tensor([0, DRAFTS], dtype=torch.int32),
        "is_kda": True,
        "lower_bound": -5.0,
        "disable_state_update": True,
    }
    copies = torch.zeros(1, DRAFTS, HEADS, WIDTH, WIDTH)
    first = torch.tensor([0], dtype=torch.int32)
    copied = verify(
        **given,
        intermediate_states_buffer=copies,
        intermediate_state_indices=first,
        cache_steps=DRAFTS,
    )
    ring = {
        "rawv": torch.zeros(SLOT + 2, HEADS, RING, WIDTH, dtype=bf16),
        "rawk": torch.zeros(SLOT + 2, HEADS, RING, WIDTH, dtype=bf16),
        "g": torch.zeros(SLOT + 2, HEADS, RING, WIDTH),
        "beta": torch.zeros(SLOT + 2, HEADS, RING),
    }
    kept = {f"replayssm_{name}": value for name, value in ring.items()}
    ringed = verify(**given, cache_ring=True, **kept)
    print(f"outputs equal: {torch.equal(copied, ringed)}")
    replay = fold(folder).commit_kda_replayssm_spec_all_layers
    for taken in (1, 3, DRAFTS):
        made = states.clone()[None]
        accepted = torch.tensor([taken], dtype=torch.int32)
        layers = [value[None] for value in ring.values()]
        replay(made, *layers, slot, accepted, RING, HEADS, null_block_id=-1)
        apart = (made[0, SLOT] - copies[0, taken - 1]).abs()
        share = 100 * float((apart > 0).float().mean())
        print(f"{taken} accepted: {share:.0f} % of the state differ, by {float(apart.max()):.1g}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
