"""Products whose result is not rounded to the type of the factors."""

from __future__ import annotations

import torch
from torch import Tensor


def project_fp32(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight.T in fp32: products of the factors as they are, never rounded on the way.

    Args:
        x: (..., inputs).
        weight: (outputs, inputs).

    Returns:
        fp32 (..., outputs).
    """
    if x.is_cuda and x.dtype == weight.dtype != torch.float32:
        flat = torch.mm(x.flatten(0, -2), weight.t(), out_dtype=torch.float32)
        return flat.view(*x.shape[:-1], -1)
    return x.float() @ weight.float().t()
