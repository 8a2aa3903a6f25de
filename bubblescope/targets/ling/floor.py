"""The bytes that one decode step must read, whoever computes it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bubblescope.targets.ling.kda import Kda
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.mla import Mla
from bubblescope.targets.ling.model import Layer
from bubblescope.targets.ling.moe import Dense, Moe

_KDA = ("qkv", "conv", "decay", "beta", "gate", "a_log", "dt_bias", "norm", "out", "state")
_MLA = ("q", "kv", "kv_norm", "key", "value", "gate", "out")


def step_bytes(loop: Loop) -> int:
    """Weights and states of all forward passes of a step, each read once a pass.

    Of the routed experts only the distinct ones that the last verify chose, and for the draft head
    as few as one token can choose. Cached latents and activations are left out: with them it is
    more, so this is a floor.
    """
    c = loop.config
    verify = sum(_layer(layer, _distinct(layer)) for layer in loop.model.layers)
    verify += _size(loop.model, "norm", "head")
    draft = _layer(loop.mtp.layer, c.top_experts)
    draft += _size(loop.mtp, "token_norm", "hidden_norm", "join", "norm")
    draft += _size(loop.model, "head")
    # One pass for each draft but the first, which `extend` makes.
    return verify + c.drafts * draft


def _layer(layer: Layer, experts: int) -> int:
    attention, feed = layer.attention, layer.feed
    names = _KDA if isinstance(attention, Kda) else _MLA
    total = _size(layer, "attention_norm", "feed_norm") + _size(attention, *names)
    if isinstance(feed, Dense):
        return total + _size(feed, "into", "out")
    each = (_bytes(feed.into) + _bytes(feed.out)) // len(feed.into)
    return (
        total + _size(feed, "router", "bias") + _size(feed.shared, "into", "out") + each * experts
    )


def _distinct(layer: Layer) -> int:
    """Experts that the last verify chose in a layer."""
    feed = layer.feed
    return len(feed.chosen.unique()) if isinstance(feed, Moe) and feed.chosen is not None else 0


def _size(owner: Mla | Kda | Any, *names: str) -> int:
    return sum(_bytes(getattr(owner, name)) for name in names)


def _bytes(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
