"""Multi-head latent attention over a paged cache of latents, absorbed form, with head gates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.device import scope
from bubblescope.targets.ling.weights import Weights, rms_norm


@dataclass(frozen=True, slots=True)
class Positions:
    """Where tokens are. at, slots: position and cache slot of each, int64 (tokens,).

    table: slot of every position of the context, int64 (context,).
    """

    at: Tensor
    slots: Tensor
    table: Tensor

    def rows(self, first: int, last: int) -> Positions:
        """Of the tokens [first, last)."""
        return Positions(self.at[first:last], self.slots[first:last], self.table)


class Mla:
    """One layer and its cache, (slots, kv_rank + rope_dim)."""

    def __init__(self, config: Config, weights: Weights) -> None:
        self._config = c = config
        self.q = weights.linear(c.heads * (c.nope_dim + c.rope_dim), c.hidden)
        self.kv = weights.linear(c.kv_rank + c.rope_dim, c.hidden)
        self.kv_norm = weights.near_one(c.kv_rank)
        self.key = weights.linear(c.nope_dim, c.kv_rank, c.heads)
        self.value = weights.linear(c.value_dim, c.kv_rank, c.heads)
        self.gate = weights.linear(c.heads, c.hidden)
        self.out = weights.branch_out(c.hidden, c.heads * c.value_dim)
        self.cache = weights.zeros(c.context, c.kv_rank + c.rope_dim)
        self._range = torch.arange(c.context, device=weights.device)
        turns = c.rope_theta ** (
            -torch.arange(0, c.rope_dim, 2, device=weights.device) / c.rope_dim
        )
        angle = self._range.unsqueeze(1) * turns
        self._cos, self._sin = angle.cos(), angle.sin()

    def __call__(self, x: Tensor, where: Positions) -> Tensor:
        """x: (tokens, hidden). Writes the tokens' latents, and reads all up to each of them."""
        c, tokens = self._config, x.shape[0]
        with scope("mla.project"):
            q = (x @ self.q.t()).view(tokens, c.heads, -1).transpose(0, 1)
            cos, sin = self._cos[where.at], self._sin[where.at]
            latent = torch.bmm(q[..., : c.nope_dim], self.key)
            q = torch.cat([latent, _rotate(q[..., c.nope_dim :], cos, sin)], -1)
            kv = x @ self.kv.t()
            normed = rms_norm(kv[:, : c.kv_rank], self.kv_norm, c.eps)
            kv = torch.cat([normed, _rotate(kv[:, c.kv_rank :], cos, sin)], -1)
        with scope("mla.attention"):
            self.cache.index_copy_(0, where.slots, kv)
            keys = self.cache[where.table]
            scores = (q @ keys.t()).float() * (c.nope_dim + c.rope_dim) ** -0.5
            scores = scores.masked_fill(self._range > where.at.unsqueeze(1), float("-inf"))
            seen = torch.softmax(scores, -1).to(x.dtype) @ keys[:, : c.kv_rank]
        with scope("mla.out"):
            heads = torch.bmm(seen, self.value.transpose(1, 2)).transpose(0, 1)
            gate = torch.sigmoid((x @ self.gate.t()).float()).to(x.dtype)
            return (heads * gate.unsqueeze(-1)).reshape(tokens, -1) @ self.out.t()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of interleaved pairs; x: (..., tokens, rope_dim)."""
    even, odd = x[..., ::2].float(), x[..., 1::2].float()
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1)
    return turned.flatten(-2).to(x.dtype)
