"""What every launch here needs to know: the interpreter, dependent launches, and dot operands.

Programmatic dependent launch (PDL) lets a kernel begin while the one before it still runs. It may
then load weights, which nobody writes, and must call `gdc_wait` before it touches anything that
another kernel wrote. Here every kernel waits before it lets the next one begin
(`gdc_launch_dependents`): so when a kernel begins, all but the one right before it are finished.
`optimizations.kernels.lint` checks both on the source.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_TOKENS = 16
"""Tokens that one launch takes at most."""


def interpreted() -> bool:
    """Whether Triton interprets kernels on the CPU (TRITON_INTERPRET=1 at its import)."""
    return bool(triton.knobs.runtime.interpret)


@cache
def dependent_launch() -> bool:
    """Whether the device has programmatic dependent launch: Hopper and later."""
    return bool(torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0))


def options(warps: int, pdl: bool, registers: int | None = None) -> dict[str, Any]:
    """Keyword arguments of a launch, with the kernel's own `PDL`.

    Args:
        warps: a program.
        pdl: begin while the kernel before still runs, where the device can.
        registers: a thread at most; fewer let more programs share a multiprocessor.
    """
    if interpreted():
        return {"PDL": False}
    pdl = pdl and dependent_launch()
    made = {"PDL": pdl, "launch_pdl": pdl, "num_warps": warps, "num_stages": 1}
    return made if registers is None else made | {"maxnreg": registers}


def dot_type(weight: Tensor) -> Any:
    """What operands of a dot are rounded to: as stored; fp32 in the interpreter, which has no bf16.

    Products of bf16 values are exact in fp32, so both round the same values. A dot of fp32 says
    `input_precision="ieee"`, or the GPU would cut its operands to the 11 bits of TF32.
    """
    return tl.float32 if interpreted() or weight.dtype == torch.float32 else tl.bfloat16


def token_block(tokens: int) -> int:
    """The power of two that a block of tokens is padded to: 8, which a matrix unit takes, or 16.

    Raises:
        ValueError: there are none, or too many for one launch.
    """
    if not 1 <= tokens <= MOST_TOKENS:
        raise ValueError(f"{tokens} tokens: a launch takes 1 to {MOST_TOKENS}")
    return 8 if tokens <= 8 else 16


def gapless(**tensors: Tensor | None) -> None:
    """Raise where a tensor has gaps: kernels take only rows of tokens to have a stride.

    Raises:
        ValueError: names the tensor.
    """
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name}: must be contiguous")


def even(what: str, size: int, block: int) -> int:
    """Programs of `block` that cover `size` to the end.

    Raises:
        ValueError: the last of them would have less to do, which the kernel has no mask for.
    """
    if size % block:
        raise ValueError(f"{what}: {size} is no multiple of {block}")
    return size // block


def contiguous(**tensors: Tensor | None) -> None:
    """Raise where a tensor's last dimension has gaps; its rows may have a stride.

    Raises:
        ValueError: names the tensor.
    """
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dim() and tensor.stride(-1) != 1:
            raise ValueError(f"{name}: the last dimension must be contiguous")
