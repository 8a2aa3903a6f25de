"""Simulated acceptance: how many drafts each step accepts, drawn once and kept on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from bubblescope.errors import BubblescopeError


def schedule(length: float, drafts: int, seed: int, device: str, steps: int = 4096) -> Tensor:
    """Accepted drafts of each step, int64 (steps,), each from 0 to `drafts`.

    Every draft is accepted with the same chance as long as those before it were; `length` is the
    mean of tokens a step gives, the accepted drafts and the one that verify adds.

    Raises:
        BubblescopeError: no such mean can be had with so many drafts.
    """
    if not 1 <= length <= drafts + 1:
        raise BubblescopeError(
            f"accept length {length:g}: with {drafts} drafts a step gives 1 to {drafts + 1} tokens"
        )
    low, high = 0.0, 1.0
    for _ in range(60):
        chance = (low + high) / 2
        mean = sum(chance**n for n in range(drafts + 1))
        low, high = (chance, high) if mean < length else (low, chance)
    generator = torch.Generator().manual_seed(seed)
    hits = torch.rand((steps, drafts), generator=generator, dtype=torch.float64) < (low + high) / 2
    return hits.to(torch.int64).cumprod(1).sum(1).to(device)
