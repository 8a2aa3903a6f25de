"""Multi-head latent attention (arXiv:2405.04434) in the absorbed form, with a gate on each head."""

from __future__ import annotations

import torch
from torch import Tensor

from bubblescope.targets.ling.reference.linear import project_fp32
from bubblescope.targets.ling.reference.norms import rms_norm
from bubblescope.targets.ling.reference.rope import rotate


def queries(q: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries against latents: the part without position taken through the key projection.

    Args:
        q: projected, (T, H, K + P), the part with a position last.
        key: what makes keys of latents, (H, K, R).
        cos: fp32 (T, P / 2), as `sin`.
        sin: of the tokens' positions.

    Returns:
        (H, T, R + P).
    """
    by_head = q.transpose(0, 1)
    size = key.shape[1]
    latent = torch.bmm(by_head[..., :size], key)
    return torch.cat([latent, rotate(by_head[..., size:], cos, sin)], -1)


def latents(kv: Tensor, norm: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    """What the cache keeps of each token: (T, R + P).

    kv: projected, (T, R + P); norm: (R,); cos, sin: fp32 (T, P / 2).
    """
    rank = norm.shape[0]
    return torch.cat([rms_norm(kv[:, :rank], norm, eps), rotate(kv[:, rank:], cos, sin)], -1)


def attention(q: Tensor, cache: Tensor, at: Tensor, rank: int, scale: float) -> Tensor:
    """Attention of all heads over one latent a position; scores and softmax are fp32.

    Args:
        q: (H, T, R + P).
        cache: latents in order of position, (S, R + P).
        at: position of each token, int64 (T,): it sees those up to its own.
        rank: R, the part of a latent that values are made of.
        scale: of the scores: (K + P) ** -0.5.

    Returns:
        (H, T, R), in q's type: to be taken through the value projection.
    """
    scores = project_fp32(q, cache) * scale
    later = torch.arange(cache.shape[0], device=q.device) > at.unsqueeze(1)
    weights = torch.softmax(scores.masked_fill(later, float("-inf")), -1)
    return weights.to(q.dtype) @ cache[:, :rank]


def values(seen: Tensor, value: Tensor, gate: Tensor) -> Tensor:
    """Values of what was seen, times sigmoid(gate) of each head; the gate is made in fp32.

    Args:
        seen: (H, T, R).
        value: what makes values of latents, (H, V, R).
        gate: projected, (T, H).

    Returns:
        (T, H * V) for the output projection.
    """
    out = torch.bmm(seen, value.transpose(1, 2)).transpose(0, 1)
    return (out * torch.sigmoid(gate.float()).to(out.dtype).unsqueeze(-1)).flatten(1)
