"""All that a sequence leaves behind in the loop, as arrays in host memory."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from bubblescope.targets.ling.kda import Kda
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.mla import Mla
from bubblescope.targets.ling.moe import Moe


def state_of(loop: Loop) -> dict[str, NDArray[Any]]:
    """States and cache entries of the model's layers, and the length. The device must be idle."""
    length = int(loop.length)
    slots = loop.table[:length]
    state = {"length": as_array(loop.length)}
    for number, layer in enumerate(loop.model.layers):
        kept = layer.attention
        if isinstance(kept, Kda):
            state[f"layer {number} KDA state"] = as_array(kept.state)
            state[f"layer {number} convolution inputs"] = as_array(kept.history)
        else:
            state[f"layer {number} MLA cache"] = as_array(kept.cache[slots])
    return state


def draft_state_of(loop: Loop) -> dict[str, NDArray[Any]]:
    """What the draft head keeps for the next step, and the token that the step begins with."""
    kept = loop.mtp.layer.attention
    state = {"next token": as_array(loop.token), "first draft": as_array(loop.drafts[:1])}
    if isinstance(kept, Mla):
        state["draft head MLA cache"] = as_array(kept.cache[loop.table[: int(loop.length)]])
    return state


def routed(loop: Loop) -> list[Moe]:
    """The model's layers with routed experts."""
    return [layer.feed for layer in loop.model.layers if isinstance(layer.feed, Moe)]


def as_array(tensor: Tensor) -> NDArray[Any]:
    """A copy in host memory; bf16 becomes fp32, which holds all its values."""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    made: NDArray[Any] = tensor.detach().cpu().clone().numpy()
    return made
