"""Kimi delta attention (arXiv:2510.26692) with the bounded gate that Ling 3.0 has.

All of it is fp32 between the input projections and the output projection.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bubblescope.targets.ling.reference.norms import gated_rms_norm, l2_norm


def short_convolution(x: Tensor, history: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """A causal convolution over each channel, without bias, then SiLU.

    Args:
        x: projected queries, keys and values, (T, C).
        history: the W - 1 inputs before x, the oldest first, (W - 1, C).
        weight: (C, W), that of the newest input last.

    Returns:
        fp32 (T, C), and the history after each token, (T, W - 1, C), of x's type.
    """
    tokens, width = x.shape[0], weight.shape[1]
    inputs = torch.cat([history, x])
    windows = inputs.unfold(0, width, 1)
    out = torch.nn.functional.silu((windows.float() * weight.float()).sum(-1))
    histories = inputs.unfold(0, width - 1, 1)[1 : tokens + 1].transpose(1, 2)
    return out, histories


def heads(qkv: Tensor, count: int, key: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (T, H, K), scaled by K ** -0.5, and keys (T, H, K), both of length 1, and values.

    qkv: fp32 (T, C): all heads' queries, then keys, then values (T, H, V). key: K.
    """
    q, k, v = qkv.split([count * key, count * key, qkv.shape[1] - 2 * count * key], 1)
    q, k, v = (x.unflatten(1, (count, -1)) for x in (q, k, v))
    return l2_norm(q) * key**-0.5, l2_norm(k), v


def log_decay(f: Tensor, a_log: Tensor, dt_bias: Tensor, bound: float) -> Tensor:
    """Return bound * sigmoid(exp(a_log) * (f + dt_bias)): fp32 (T, H, K), from bound (< 0) to 0.

    f: (T, H, K); a_log: fp32 (H, 1); dt_bias: fp32 (H, K).
    """
    return bound * torch.sigmoid(a_log.exp() * (f.float() + dt_bias))


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Token by token: S = S * exp(g); S = S + beta (v - S k) k^T; out = S q.

    Args:
        q: (T, H, K), as all of these fp32.
        k: (T, H, K).
        v: (T, H, V).
        g: logarithm of the decay, (T, H, K).
        beta: (T, H).
        state: S before the first token, (H, V, K). It stays as it is.

    Returns:
        Outputs (T, H, V), and the state after each token, (T, H, V, K).
    """
    decay = g.exp()
    out, states = [], []
    for t in range(q.shape[0]):
        state = state * decay[t].unsqueeze(1)
        error = (v[t] - (state @ k[t].unsqueeze(-1)).squeeze(-1)) * beta[t].unsqueeze(-1)
        state = torch.baddbmm(state, error.unsqueeze(-1), k[t].unsqueeze(1))
        out.append((state @ q[t].unsqueeze(-1)).squeeze(-1))
        states.append(state)
    return torch.stack(out), torch.stack(states)


def kda(
    qkv: Tensor,
    f: Tensor,
    b: Tensor,
    gate: Tensor,
    conv: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    norm: Tensor,
    state: Tensor,
    history: Tensor,
    bound: float = -5.0,
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor, Tensor]:
    """A layer between its projections: what one fused kernel does.

    Args:
        qkv: projected queries, keys and values, (T, C), before the convolution.
        f: projected decay, (T, H * K).
        b: projected beta, before its sigmoid, (T, H).
        gate: projected output gate, before its sigmoid, (T, H * V).
        conv: (C, W).
        a_log: fp32 (H, 1).
        dt_bias: fp32 (H, K).
        norm: of the output norm, (V,).
        state: fp32 (H, V, K). It stays as it is.
        history: (W - 1, C). It stays as it is.
        bound: least logarithm of a decay.
        eps: of the output norm.

    Returns:
        fp32 (T, H * V) for the output projection, then what is staged: the state after each
        token, fp32 (T, H, V, K), and the history after each, (T, W - 1, C).
    """
    count, key = dt_bias.shape
    mixed, histories = short_convolution(qkv, history, conv)
    q, k, v = heads(mixed, count, key)
    g = log_decay(f.unflatten(1, (count, key)), a_log, dt_bias, bound)
    out, states = delta_rule(q, k, v, g, torch.sigmoid(b.float()), state)
    out = gated_rms_norm(out, norm, gate.unflatten(1, (count, -1)), eps)
    return out.flatten(1), states, histories
