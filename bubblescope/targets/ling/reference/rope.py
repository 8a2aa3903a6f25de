"""Rotary positions (arXiv:2104.09864) of interleaved pairs, as `rope_interleave` has it."""

from __future__ import annotations

import torch
from torch import Tensor


def rope_table(positions: int, size: int, theta: float, device: str) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position's angles, both fp32 (positions, size / 2).

    Pair i turns by theta ** (-2 i / size) a position.
    """
    turns = 1 / theta ** (torch.arange(0, size, 2, device=device) / size)
    angles = torch.arange(positions, device=device).unsqueeze(1) * turns
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (x[2i], x[2i + 1]), in fp32 and rounded to x's type.

    x: (..., T, P); cos, sin: fp32 (T, P / 2).
    """
    even, odd = x[..., ::2].float(), x[..., 1::2].float()
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1)
    return turned.flatten(-2).to(x.dtype)
