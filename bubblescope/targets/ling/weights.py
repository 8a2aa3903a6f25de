"""Seeded random weights, and memory for weights that are loaded."""

from __future__ import annotations

import torch
from torch import Tensor


class Weights:
    """Makes tensors in a fixed order, so that a seed says what they are.

    branch: factor of the projections whose output is added to the residual stream.
    """

    def __init__(self, seed: int, device: str, dtype: torch.dtype, branch: float = 1.0) -> None:
        self.device, self.dtype, self._branch = device, dtype, branch
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def normal(self, *shape: int, std: float, dtype: torch.dtype | None = None) -> Tensor:
        """Normally distributed around 0."""
        made = torch.empty(shape, device=self.device, dtype=dtype or self.dtype)
        return made.normal_(std=std, generator=self._generator)

    def linear(self, outputs: int, inputs: int, *before: int) -> Tensor:
        """A projection that keeps the size of its input's entries; shape (*before, out, in)."""
        return self.normal(*before, outputs, inputs, std=inputs**-0.5)

    def branch_out(self, outputs: int, inputs: int, *before: int) -> Tensor:
        """A projection whose output is added to the residual stream; shape as of `linear`."""
        return self.linear(outputs, inputs, *before).mul_(self._branch)

    def near_one(self, *shape: int) -> Tensor:
        """Weights of a norm."""
        return 1 + self.normal(*shape, std=0.1)

    def zeros(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A buffer."""
        return torch.zeros(shape, device=self.device, dtype=dtype or self.dtype)

    def integers(self, *shape: int) -> Tensor:
        """An int64 buffer of zeros."""
        return torch.zeros(shape, device=self.device, dtype=torch.int64)


class Widened(Weights):
    """The same values as those of lower precision, in fp32, in which all is computed then."""

    def normal(self, *shape: int, std: float, dtype: torch.dtype | None = None) -> Tensor:
        """Drawn and rounded as without widening."""
        return super().normal(*shape, std=std, dtype=dtype).float()

    def near_one(self, *shape: int) -> Tensor:
        """Rounded after 1 was added, as without widening."""
        return (1 + super().normal(*shape, std=0.1)).float()

    def zeros(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A buffer in fp32."""
        return super().zeros(*shape, dtype=torch.float32)


class Unset(Weights):
    """Memory only: `checkpoint.load` fills it. On the device "meta", shapes only."""

    def __init__(self, seed: int, device: str, dtype: torch.dtype, branch: float = 1.0) -> None:
        self.device, self.dtype, self._branch = device, dtype, branch

    def normal(self, *shape: int, std: float, dtype: torch.dtype | None = None) -> Tensor:
        """Whatever was there."""
        return torch.empty(shape, device=self.device, dtype=dtype or self.dtype)
