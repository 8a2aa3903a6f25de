"""The bytes that one decode step must read, whoever computes it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.kda import Kda
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.mla import Mla
from bubblescope.targets.ling.model import Layer
from bubblescope.targets.ling.moe import Dense, Moe
from bubblescope.targets.ling.weights import Unset

_KDA = ("qkv", "conv", "decay", "beta", "gate", "a_log", "dt_bias", "norm", "out", "state")
_MLA = ("q", "kv", "kv_norm", "key", "value", "gate", "out")


def step_bytes(loop: Loop, experts: float | None = None) -> int:
    """Weights and states of all forward passes of a step, each read once a pass.

    Of the routed experts only the distinct ones, and for the draft head as few as one token can
    choose. Router gates and vocabulary count in the precision of the other weights, since passes
    round them so. Cached latents and activations are left out: with them it is more, so this is a
    floor.

    Args:
        loop: whose shapes count.
        experts: distinct ones a layer of a verify, in the mean; where None, those of the last one.
    """
    c = loop.config
    verify = sum(
        _layer(layer, _distinct(layer) if experts is None else experts)
        for layer in loop.model.layers
    )
    head = int(loop.model.head.numel() * loop.model.embedding.element_size())
    verify += _size(loop.model, "norm") + head
    draft = _layer(loop.mtp.layer, c.top_experts)
    draft += _size(loop.mtp, "token_norm", "hidden_norm", "join", "norm")
    draft += head
    # One pass for each draft but the first, which `extend` makes.
    return round(verify + c.drafts * draft)


def step_bytes_of(config: Config, experts: float) -> int:
    """The same for a model of these shapes in bf16, wherever it runs."""
    return step_bytes(Loop(config, Unset(0, "meta", torch.bfloat16)), experts)


def _layer(layer: Layer, experts: float) -> float:
    attention, feed = layer.attention, layer.feed
    names = _KDA if isinstance(attention, Kda) else _MLA
    total = _size(layer, "attention_norm", "feed_norm") + _size(attention, *names)
    if isinstance(feed, Dense):
        return total + _size(feed, "into", "out")
    each: float = (_bytes(feed.into) + _bytes(feed.out)) // len(feed.into)
    gate = int(feed.router.numel() * feed.into.element_size())
    return total + gate + _size(feed, "bias") + _size(feed.shared, "into", "out") + each * experts


def _distinct(layer: Layer) -> int:
    """Experts that the last verify chose in a layer."""
    feed = layer.feed
    return len(feed.chosen.unique()) if isinstance(feed, Moe) and feed.chosen is not None else 0


def _size(owner: Mla | Kda | Any, *names: str) -> int:
    return sum(_bytes(getattr(owner, name)) for name in names)


def _bytes(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
