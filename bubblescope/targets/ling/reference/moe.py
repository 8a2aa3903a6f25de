"""A mixture of experts with the grouped sigmoid router of DeepSeek-V3 (arXiv:2412.19437)."""

from __future__ import annotations

import torch
from torch import Tensor


def route(
    logits: Tensor, bias: Tensor, groups: int, top_groups: int, top: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Experts and their weights for each token.

    A group's score is the sum of its two best experts'. The bias chooses, but does not weigh.

    Args:
        logits: of the router, fp32 (T, E).
        bias: fp32 (E,).
        groups: G, which divides E.
        top_groups: groups kept.
        top: N, experts chosen among those.
        scale: what a token's weights add up to.

    Returns:
        int64 (T, N), the best first, and fp32 (T, N).
    """
    scores = torch.sigmoid(logits)
    grouped = (scores + bias).unflatten(1, (groups, -1))
    best = grouped.topk(2, -1).values.sum(-1).topk(top_groups, -1).indices
    outside = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter(1, best, False)
    allowed = grouped.masked_fill(outside.unsqueeze(-1), float("-inf")).flatten(1)
    chosen = allowed.topk(top, -1).indices
    weight = scores.gather(1, chosen)
    return chosen, weight / weight.sum(-1, keepdim=True) * scale


def swiglu(both: Tensor, limit: float) -> Tensor:
    """silu(gate) * up of gates and ups, (..., 2 F), in its type.

    limit: silu(gate) is clamped to at most it, up to both sides; 0 for none.
    """
    gate, up = both.chunk(2, -1)
    gate = torch.nn.functional.silu(gate)
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * up


def dense(x: Tensor, into: Tensor, out: Tensor, limit: float) -> Tensor:
    """A SwiGLU layer of (T, D). into: (2 F, D), gates first; out: (D, F)."""
    return swiglu(x @ into.t(), limit) @ out.t()


def experts(
    x: Tensor, into: Tensor, out: Tensor, chosen: Tensor, weight: Tensor, limit: float
) -> Tensor:
    """The weighted sum of each token's experts, summed in fp32 and rounded once.

    Args:
        x: (T, D).
        into: (E, 2 F, D), gates first.
        out: (E, D, F).
        chosen: int64 (T, N).
        weight: fp32 (T, N).
        limit: as of `swiglu`.

    Returns:
        (T, D), in x's type.
    """
    picked = chosen.flatten()
    each = x.repeat_interleave(chosen.shape[1], 0).unsqueeze(-1)
    inner = swiglu(torch.bmm(into[picked], each).squeeze(-1), limit)
    made = torch.bmm(out[picked], inner.unsqueeze(-1)).view(*chosen.shape, -1)
    return (made.float() * weight.unsqueeze(-1)).sum(1).to(x.dtype)
