"""The input of the draft head, multi-token prediction as of DeepSeek-V3 (arXiv:2412.19437)."""

from __future__ import annotations

import torch
from torch import Tensor

from bubblescope.targets.ling.reference.norms import rms_norm


def join(
    embedded: Tensor,
    hidden: Tensor,
    token_norm: Tensor,
    hidden_norm: Tensor,
    weight: Tensor,
    eps: float,
) -> Tensor:
    """[rms_norm(embedded), rms_norm(hidden)] @ weight.T: what the head's layer begins with.

    Args:
        embedded: of the token after each position, (T, D).
        hidden: of each position, behind the last norm of what made it: the model, or this head
            for a further draft; (T, D).
        token_norm: (D,).
        hidden_norm: (D,).
        weight: (D, 2 D).
        eps: of both norms.

    Returns:
        (T, D).
    """
    both = [rms_norm(embedded, token_norm, eps), rms_norm(hidden, hidden_norm, eps)]
    return torch.cat(both, -1) @ weight.t()
