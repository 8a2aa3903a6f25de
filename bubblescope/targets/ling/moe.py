"""Feed-forward layers: dense, and a mixture of experts with a grouped sigmoid router."""

from __future__ import annotations

import torch
from torch import Tensor

from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.device import scope
from bubblescope.targets.ling.reference import moe
from bubblescope.targets.ling.weights import Weights


class Dense:
    """A SwiGLU layer."""

    def __init__(self, hidden: int, width: int, limit: float, weights: Weights) -> None:
        self._limit = limit
        self.into = weights.linear(2 * width, hidden)
        self.out = weights.branch_out(hidden, width)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, hidden)."""
        return moe.dense(x, self.into, self.out, self._limit)


class Moe:
    """Routed experts and a shared one.

    chosen: experts of the tokens seen last, int64 (tokens, top_experts): memory of the graph that
    was captured last.
    """

    def __init__(self, config: Config, limit: float, shared_limit: float, weights: Weights) -> None:
        self._config, self._limit = config, limit
        c = config
        self.router = weights.normal(c.experts, c.hidden, std=c.hidden**-0.5, dtype=torch.float32)
        self.bias = weights.normal(c.experts, std=0.01, dtype=torch.float32)
        self.into = weights.linear(2 * c.expert_width, c.hidden, c.experts)
        self.out = weights.branch_out(c.hidden, c.expert_width, c.experts)
        self.shared = Dense(c.hidden, c.shared_width, shared_limit, weights)
        self.chosen: Tensor | None = None

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Experts and their weights for each token, both (tokens, top_experts)."""
        c = self._config
        logits = x.float() @ self.router.t()
        return moe.route(
            logits, self.bias, c.expert_groups, c.top_groups, c.top_experts, c.routed_scale
        )

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, hidden)."""
        with scope("moe.router"):
            chosen, weight = self.route(x)
        self.chosen = chosen
        with scope("moe.experts"):
            routed = moe.experts(x, self.into, self.out, chosen, weight, self._limit)
        with scope("moe.shared"):
            return routed + self.shared(x)
