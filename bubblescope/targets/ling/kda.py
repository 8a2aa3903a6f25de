"""Kimi delta attention: a gated delta rule over a state, behind a short convolution."""

from __future__ import annotations

import torch
from torch import Tensor

from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.device import scope
from bubblescope.targets.ling.weights import Weights, rms_norm


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
        self.conv = weights.normal(3 * inner, c.conv_width, std=c.conv_width**-0.5)
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
        """x: (tokens, hidden), the tokens in order after the state's last one."""
        c, tokens = self._config, x.shape[0]
        with scope("kda.conv"):
            inputs = torch.cat([self.history, x @ self.qkv.t()])
            windows = inputs.unfold(0, c.conv_width, 1)
            qkv = torch.nn.functional.silu((windows * self.conv).sum(-1))
            histories = inputs.unfold(0, c.conv_width - 1, 1)[1 : tokens + 1]
            self.staged_history[:tokens].copy_(histories.transpose(1, 2))
        with scope("kda.gate"):
            q, k, v = qkv.float().view(tokens, 3, c.heads, c.head_dim).unbind(1)
            q, k = _unit(q) * c.head_dim**-0.5, _unit(k)
            decay = (x @ self.decay.t()).float().view(tokens, c.heads, c.head_dim)
            decay = torch.sigmoid(self.a_log.exp() * (decay + self.dt_bias))
            decay = (c.gate_bound * decay).exp()
            beta = torch.sigmoid((x @ self.beta.t()).float())
        with scope("kda.delta rule"):
            out = self._recurrence(q, k, v, decay, beta)
        with scope("kda.out"):
            gate = torch.sigmoid((x @ self.gate.t()).float())
            out = rms_norm(out, self.norm.float(), c.eps).flatten(1) * gate
            return out.to(x.dtype) @ self.out.t()

    def _recurrence(self, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
        """(tokens, heads, value). Stages the state after each token; `state` stays as it was."""
        state, out = self.state, []
        for t in range(q.shape[0]):
            state = state * decay[t].unsqueeze(1)
            error = (v[t] - (state @ k[t].unsqueeze(-1)).squeeze(-1)) * beta[t].unsqueeze(-1)
            state = torch.baddbmm(state, error.unsqueeze(-1), k[t].unsqueeze(1))
            self.staged_state[t].copy_(state)
            out.append((state @ q[t].unsqueeze(-1)).squeeze(-1))
        return torch.stack(out)

    def commit(self, accepted: Tensor) -> None:
        """Take over the state after token `accepted`, int64 (1,), of those verified last."""
        with scope("kda.commit"):
            self.state.copy_(self.staged_state.index_select(0, accepted).squeeze(0))
            self.history.copy_(self.staged_history.index_select(0, accepted).squeeze(0))

    def reset(self) -> None:
        """An empty sequence."""
        self.state.zero_()
        self.history.zero_()


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)
