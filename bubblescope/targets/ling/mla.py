"""Multi-head latent attention over a paged cache of latents, absorbed form, with head gates."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.device import scope
from bubblescope.targets.ling.reference import mla
from bubblescope.targets.ling.reference.rope import rope_table
from bubblescope.targets.ling.weights import Weights


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
        self._cos, self._sin = rope_table(c.context, c.rope_dim, c.rope_theta, weights.device)

    def __call__(self, x: Tensor, where: Positions) -> Tensor:
        """x: (tokens, hidden). Writes the tokens' latents, and reads all up to each of them."""
        c = self._config
        with scope("mla.project"):
            cos, sin = self._cos[where.at], self._sin[where.at]
            q = (x @ self.q.t()).view(x.shape[0], c.heads, -1)
            q = mla.queries(q, self.key, cos, sin)
            latents = mla.latents(x @ self.kv.t(), self.kv_norm, cos, sin, c.eps)
        with scope("mla.attention"):
            self.cache.index_copy_(0, where.slots, latents)
            scale = (c.nope_dim + c.rope_dim) ** -0.5
            seen = mla.attention(q, self.cache[where.table], where.at, c.kv_rank, scale)
        with scope("mla.out"):
            return mla.values(seen, self.value, x @ self.gate.t()) @ self.out.t()
