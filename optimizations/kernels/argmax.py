"""The most likely token of each row of logits, in two small kernels.

Both are short of work, not of bandwidth: 157 kB a row for 39296 tokens of a rank. One program a row
would read it at one multiprocessor's speed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from optimizations.kernels.launching import contiguous, options

PIECE = 2048
"""Logits of one program."""


@triton.jit
def _pieces(logits, best, place, count, stride, PIECE: tl.constexpr, PDL: tl.constexpr):
    row = tl.program_id(0)
    piece = tl.program_id(1)
    at = piece * PIECE + tl.arange(0, PIECE)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    value = tl.load(logits + row * stride + at, mask=at < count, other=float("-inf"))
    to = row * tl.num_programs(1) + piece
    tl.store(best + to, tl.max(value, 0))
    tl.store(place + to, piece * PIECE + tl.argmax(value, 0))


@triton.jit
def _whole(best, place, out, pieces, BLOCK: tl.constexpr, PDL: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    value = tl.load(best + row * pieces + at, mask=at < pieces, other=float("-inf"))
    first = tl.argmax(value, 0)
    tl.store(out + row, tl.load(place + row * pieces + first).to(tl.int64))


def argmax(logits: Tensor, *, out: Tensor | None = None, pdl: bool = False) -> Tensor:
    """Where each row is largest; the first of equals.

    Args:
        logits: (rows, count), rows may have a stride; no NaN.
        out: int64 (rows,); made where None.
        pdl: see `launching`.

    Returns:
        int64 (rows,).
    """
    rows, count = logits.shape
    contiguous(logits=logits)
    pieces = triton.cdiv(count, PIECE)
    best = torch.empty((rows, pieces), device=logits.device, dtype=logits.dtype)
    place = torch.empty((rows, pieces), device=logits.device, dtype=torch.int32)
    if out is None:
        out = torch.empty(rows, device=logits.device, dtype=torch.int64)
    _pieces[(rows, pieces)](
        logits, best, place, count, logits.stride(0), PIECE=PIECE, **options(4, pdl)
    )
    _whole[(rows,)](
        best, place, out, pieces, BLOCK=triton.next_power_of_2(pieces), **options(1, pdl)
    )
    return out
