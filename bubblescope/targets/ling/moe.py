"""Feed-forward layers: dense, and a mixture of experts with a grouped sigmoid router."""

from __future__ import annotations

import torch
from torch import Tensor

from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.device import scope
from bubblescope.targets.ling.weights import Weights, swiglu


class Dense:
    """A SwiGLU layer."""

    def __init__(self, hidden: int, width: int, limit: float, weights: Weights) -> None:
        self._limit = limit
        self.into = weights.linear(2 * width, hidden)
        self.out = weights.branch_out(hidden, width)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, hidden)."""
        return swiglu(x @ self.into.t(), self._limit) @ self.out.t()


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
        """Experts and their weights for each token, both (tokens, top_experts).

        A group's score is the sum of its two best experts; the bias chooses but does not weigh.
        """
        c = self._config
        scores = torch.sigmoid(x.float() @ self.router.t())
        biased = scores + self.bias
        groups = biased.view(-1, c.expert_groups, c.experts // c.expert_groups)
        best = groups.topk(2, -1).values.sum(-1).topk(c.top_groups, -1).indices
        outside = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter(1, best, False)
        allowed = groups.masked_fill(outside.unsqueeze(-1), float("-inf")).flatten(1)
        chosen = allowed.topk(c.top_experts, -1).indices
        weight = scores.gather(1, chosen)
        return chosen, weight / weight.sum(-1, keepdim=True) * c.routed_scale

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, hidden)."""
        with scope("moe.router"):
            chosen, weight = self.route(x)
        self.chosen = chosen
        with scope("moe.experts"):
            picked = chosen.flatten()
            each = x.repeat_interleave(chosen.shape[1], 0).unsqueeze(-1)
            inner = swiglu(torch.bmm(self.into[picked], each).squeeze(-1), self._limit)
            out = torch.bmm(self.out[picked], inner.unsqueeze(-1)).view(*chosen.shape, -1)
            routed = (out * weight.unsqueeze(-1).to(x.dtype)).sum(1)
        with scope("moe.shared"):
            return routed + self.shared(x)
