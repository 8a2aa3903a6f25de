"""What docs/gates.md says was measured: the gates of a pass, and bf16 against fp32.

    python benchmarks/gates.py --device cuda --layers 42
    python benchmarks/gates.py --device cpu            # a narrow model, in bf16 on the CPU

The second part runs 60 tokens without speculation in bf16, then the same tokens in fp32, with what
the layers add to the residual stream scaled by 1, 1/4 and the power of two next to 1 / layers.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from dataclasses import replace

import numpy as np
import torch

from bubblescope.ablate.gates import check
from bubblescope.ablate.gates.compare import top_margins
from bubblescope.targets.gated import PlainRun
from bubblescope.targets.ling import plain
from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.target import Ling
from bubblescope.targets.ling.weights import Weights, Widened

TOKENS = 60


def narrow(layers: int) -> Config:
    """Many layers and experts, the rest small."""
    return replace(
        Config.tiny(),
        layers=layers,
        group=6,
        dense_layers=2,
        hidden=256,
        head_dim=64,
        experts=128,
        expert_groups=8,
        top_groups=4,
        top_experts=8,
        expert_width=64,
        shared_width=64,
        dense_width=256,
        vocabulary=8192,
        swiglu_limit=(0.0,) * layers,
        shared_swiglu_limit=(0.0,) * layers,
    )


def run(config: Config, kind: type[Weights], device: str, branch: float, along: list[int] | None):
    loop = Loop(config, kind(0, device, torch.bfloat16, branch))
    made = plain.run(loop, TOKENS, along, 1, None)
    del loop
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return made


def compare(config: Config, device: str, branch: float) -> str:
    bf16: PlainRun = run(config, Weights, device, branch, None)
    fp32: PlainRun = run(config, Widened, device, branch, bf16.tokens.tolist())
    moved = np.abs(bf16.logits - fp32.logits)
    kept = (bf16.experts[..., :, np.newaxis] == fp32.experts[..., np.newaxis, :]).any(-1)
    return (
        f"branch {branch:<8g} median margin {np.median(top_margins(fp32.logits)):.3f}  "
        f"logits off fp32: rms {np.sqrt((moved**2).mean()):.4f}, most {moved.max():.3f}  "
        f"flips: {int((bf16.tokens != fp32.tokens).sum())} of {TOKENS} tokens, "
        f"{1 - kept.mean():.1%} of experts"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cpu")
    parser.add_argument("--layers", type=int, default=42)
    options = parser.parse_args()
    cuda, began = options.device == "cuda", time.monotonic()

    def target() -> Ling:
        return Ling(options.device, layers=options.layers) if cuda else Ling("cpu")

    for result in check(target, ["seq-len-sync"]):
        print(f"{result.gate:<18}{result.verdict:<12}{result.detail}", flush=True)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    torch.set_num_threads(torch.get_num_threads() if cuda else 1)
    config = Config.tp4_rank().with_layers(options.layers) if cuda else narrow(options.layers)
    for branch in (1.0, 0.25, 2.0 ** -round(math.log2(options.layers))):
        print(compare(config, options.device, branch), flush=True)


if __name__ == "__main__":
    main()
