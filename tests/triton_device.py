"""Where kernels are tested: on CUDA where there is one, else in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made", Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor])

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BF16, FP32 = torch.bfloat16, torch.float32
NAN = float("nan")


class Draw:
    """Seeded random tensors on the device."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int, std: float = 1.0, dtype: torch.dtype = BF16) -> Tensor:
        made = torch.randn(shape, generator=self._generator) * std
        return made.to(dtype).to(DEVICE)

    def linear(self, *shape: int, dtype: torch.dtype = BF16) -> Tensor:
        """Weights that keep the size of what they are applied to."""
        return self(*shape, std=shape[-1] ** -0.5, dtype=dtype)

    def norm(self, size: int, dtype: torch.dtype = BF16) -> Tensor:
        return (1 + self(size, std=0.1, dtype=FP32)).to(dtype)


def padded(values: Tensor, extra: int = 16) -> Tensor:
    """The same values in rows that are longer, with NaN behind them."""
    room = torch.full((values.shape[0], values.shape[1] + extra), NAN, device=values.device)
    room = room.to(values.dtype)
    room[:, : values.shape[1]] = values
    return room[:, : values.shape[1]]


def unwritten(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    """Memory that shows whether all of it was written."""
    return torch.full(shape, NAN, device=DEVICE).to(dtype)


def again(run: Callable[[], Made]) -> Made:
    """What `run` gives; on CUDA it must give the same bits each time, however programs are run."""
    made = run()
    for _ in range(20 if DEVICE == "cuda" else 0):
        for one, other in zip(_each(made), _each(run()), strict=True):
            assert torch.equal(one, other)
    return made


def _each(made: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (made,) if isinstance(made, Tensor) else made


def error(actual: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm; NaN where any value is."""
    difference = (actual.double() - expected.double()).norm() / expected.double().norm()
    return float(difference)


ROUNDED = 8e-3
"""More than a few roundings to bf16 give (each at most 2**-8), which the interpreter cuts off."""
EXACT = 1e-5
"""For what is fp32 throughout."""
