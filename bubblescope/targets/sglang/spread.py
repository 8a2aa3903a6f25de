"""In the scheduler's process: dummy weights that choose many experts and clear tokens.

SGLang fills dummy weights uniformly within 1e-3, from one seed: then nearly all tokens choose the
same experts, and logits are equal but for rounding. Here each matrix keeps the variance of what it
is given, and is filled from a seed of its own.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

BRANCH = 2.0**-5
"""Standard deviation of what a branch adds to the residual stream, over that of its input.

Next to 1 / layers, as `ling.gated`: otherwise rounding that sends a token to other experts in one
layer grows from layer to layer, and soon says more than the model.
"""
_ADDS = ("o_proj.weight", "down_proj.weight", "w2_weight")


def fill(_original: Callable[..., None], model: Any, *_given: Any, **_more: Any) -> None:
    """In place of SGLang's `initialize_dummy_weights`."""
    import torch

    for name, value in model.state_dict().items():
        if not torch.is_floating_point(value):
            continue
        if value.dim() == 1 and "norm" in name:
            value.fill_(1)
            continue
        draw = torch.Generator(device=value.device).manual_seed(zlib.crc32(name.encode()))
        most = bound(name, tuple(value.shape))
        value.uniform_(-most, most, generator=draw)


def bound(name: str, shape: tuple[int, ...]) -> float:
    """Largest entry of a uniform weight of that name and shape."""
    if len(shape) == 1:
        return 0.1
    if "word_embeddings" in name or "embed_tokens" in name:
        return math.sqrt(3)
    gain = BRANCH if name.endswith(_ADDS) else 1.0
    return gain * math.sqrt(3 / shape[-1])
