"""Kimi delta attention: a gated delta rule over a state, behind a short convolution."""

from __future__ import annotations

import torch
from torch import Tensor

from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.device import scope
from bubblescope.targets.ling.reference import kda
from bubblescope.targets.ling.reference.norms import gated_rms_norm
from bubblescope.targets.ling.weights import Weights


class Kda:
    """One layer, its state, and the states that a verification stages.

    state: (heads, value, key) in fp32. history: the last inputs of the convolution, (width - 1,
    channels). staged_state, staged_history: the same after each of the tokens verified, one more
    dimension in front; `commit` takes one of them over.
    """

    def __init__(self, config: Config, weights: Weights) -> None:
        self._config = c = config
        inner = c.heads * c.head_dim
        self.qkv = weights.linear(3 * inner, c.hidden)
        self.conv = weights.normal(
            3 * inner, c.conv_width, std=c.conv_width**-0.5, dtype=torch.float32
        )
        self.decay = weights.linear(inner, c.hidden)
        self.beta = weights.linear(c.heads, c.hidden)
        self.gate = weights.linear(inner, c.hidden)
        self.a_log = weights.normal(c.heads, 1, std=0.5, dtype=torch.float32)
        self.dt_bias = weights.normal(c.heads, c.head_dim, std=0.5, dtype=torch.float32) - 3
        self.norm = weights.near_one(c.head_dim)
        self.out = weights.branch_out(c.hidden, inner)
        fp32 = torch.float32
        self.state = weights.zeros(c.heads, c.head_dim, c.head_dim, dtype=fp32)
        self.history = weights.zeros(c.conv_width - 1, 3 * inner)
        self.staged_state = weights.zeros(c.window, *self.state.shape, dtype=fp32)
        self.staged_history = weights.zeros(c.window, *self.history.shape)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, hidden), the tokens in order after the state's last one.

        Stages the state and the history after each token; those kept stay as they are.
        """
        c, tokens = self._config, x.shape[0]
        with scope("kda.conv"):
            qkv, histories = kda.short_convolution(x @ self.qkv.t(), self.history, self.conv)
            self.staged_history[:tokens].copy_(histories)
        with scope("kda.gate"):
            q, k, v = kda.heads(qkv, c.heads, c.head_dim)
            f = (x @ self.decay.t()).view(tokens, c.heads, c.head_dim)
            g = kda.log_decay(f, self.a_log, self.dt_bias, c.gate_bound)
            beta = torch.sigmoid((x @ self.beta.t()).float())
        with scope("kda.delta rule"):
            out, states = kda.delta_rule(q, k, v, g, beta, self.state)
            self.staged_state[:tokens].copy_(states)
        with scope("kda.out"):
            gate = (x @ self.gate.t()).view(tokens, c.heads, c.head_dim)
            out = gated_rms_norm(out, self.norm, gate, c.eps).flatten(1)
            return out.to(x.dtype) @ self.out.t()

    def commit(self, accepted: Tensor) -> None:
        """Take over the state after token `accepted`, int64 (1,), of those verified last."""
        with scope("kda.commit"):
            self.state.copy_(self.staged_state.index_select(0, accepted).squeeze(0))
            self.history.copy_(self.staged_history.index_select(0, accepted).squeeze(0))

    def reset(self) -> None:
        """An empty sequence."""
        self.state.zero_()
        self.history.zero_()
