"""Norms: RMSNorm (arXiv:1910.07467), with an output gate, and L2."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x / sqrt(mean(x ** 2) + eps) * weight over the last dimension, in x's type.

    x: (..., D); weight: (D,), of the same type.
    """
    return torch.rms_norm(x, (x.shape[-1],), weight, eps)


def gated_rms_norm(x: Tensor, weight: Tensor, gate: Tensor, eps: float) -> Tensor:
    """rms_norm(x) * sigmoid(gate), in fp32. x, gate: (..., V); weight: (V,)."""
    return rms_norm(x.float(), weight.float(), eps) * torch.sigmoid(gate.float())


def l2_norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Return x / sqrt(sum(x ** 2) + eps) over the last dimension, in x's type."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + eps)
