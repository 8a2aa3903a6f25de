"""Projections of a few tokens: what comes before them, and the residual after, in one kernel.

The bound is the weight matrix, read once: rows * width * 2 bytes, 13.1 MB for 2560 x 2560. Each
program holds a block of rows over the whole width, so sums need no second pass and come out the
same in every run. The width is cut into one part a warp: a batched dot, whose batch is the warps,
gives every warp its own part for the matrix unit.

Where a norm comes first, its scale is a factor of each token's sum: the same loop adds up the
squares. Values times norm weight are rounded to the weights' precision, sums are scaled in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from optimizations.kernels.launching import (
    contiguous,
    dot_type,
    even,
    gapless,
    options,
    token_block,
)
from optimizations.kernels.lint import Reads

PLAIN = tl.constexpr(0)
NORM = tl.constexpr(1)
HEADS = tl.constexpr(2)
SWIGLU = tl.constexpr(3)

BEFORE_WAIT = {"_project": Reads(constant=("weight",))}


@triton.jit
def _project(
    x,
    weight,
    norm,
    gate,
    residual,
    out,
    rows,
    x_stride,
    gate_stride,
    residual_stride,
    out_stride,
    eps,
    limit,
    WIDTH: tl.constexpr,
    TOKENS: tl.constexpr,
    BEFORE: tl.constexpr,
    ADD: tl.constexpr,
    DOT: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    PART: tl.constexpr,
    HELD: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    STEP: tl.constexpr = PARTS * PART
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    m = tl.arange(0, BLOCK)[None, None, :]
    first = tl.arange(0, PARTS)[:, None, None] * PART
    along = first + tl.arange(0, PART)[None, None, :]
    down = first + tl.arange(0, PART)[None, :, None]
    w_at = weight + n.to(tl.int64)[None, :, None] * WIDTH + along
    inside = n[None, :, None] < rows
    held = ()
    for i in tl.static_range(HELD):
        w = tl.load(w_at + i * STEP, mask=inside, other=0.0, eviction_policy="evict_first")
        held = held + (w,)  # noqa: RUF005 (tuples of tensors only add)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    sums = tl.zeros((PARTS, ROWS, BLOCK), tl.float32)
    squares = tl.zeros((PARTS, PART, BLOCK), tl.float32)
    for i in tl.static_range(WIDTH // STEP):
        at = m * x_stride + i * STEP + down
        a = tl.load(x + at, mask=m < TOKENS, other=0.0).to(tl.float32)
        if BEFORE == NORM:
            squares += a * a
            a = a * tl.load(norm + i * STEP + down).to(tl.float32)
        if BEFORE == HEADS:
            scale = tl.rsqrt(tl.sum(a * a, 1) / PART + eps)
            g = tl.load(gate + m * gate_stride + i * STEP + down, mask=m < TOKENS, other=0.0)
            weigh = tl.load(norm + tl.arange(0, PART))[None, :, None].to(tl.float32)
            a = a * scale[:, None, :] * weigh * tl.sigmoid(g.to(tl.float32))
        if BEFORE == SWIGLU:
            up = tl.load(x + at + WIDTH, mask=m < TOKENS, other=0.0).to(tl.float32)
            a = a * tl.sigmoid(a)
            if limit > 0:
                a = tl.minimum(a, limit)
                up = tl.minimum(tl.maximum(up, -limit), limit)
            a = a * up
        if i < HELD:
            w = held[i]
        else:
            w = tl.load(w_at + i * STEP, mask=inside, other=0.0, eviction_policy="evict_first")
        a = a.to(weight.dtype.element_ty).to(DOT)
        sums = tl.dot(w.to(DOT), a, sums, input_precision="ieee")
    y = tl.sum(sums, 0)
    if BEFORE == NORM:
        y = y * tl.rsqrt(tl.sum(tl.sum(squares, 0), 0) / WIDTH + eps)[None, :]
    t = tl.arange(0, BLOCK)[None, :]
    keep = (n[:, None] < rows) & (t < TOKENS)
    if ADD:
        y += tl.load(residual + t * residual_stride + n[:, None], mask=keep, other=0.0)
    tl.store(out + t * out_stride + n[:, None], y, mask=keep)


@dataclass(frozen=True, slots=True)
class Tile:
    """How a projection is cut: rows a program, parts of the width (and warps), width of a part.

    held: steps of the width whose weights are loaded before the wait, and kept in registers.
    """

    rows: int
    parts: int
    part: int
    held: int


def tile(rows: int, width: int, head: int = 0) -> Tile:
    """The fixed choice for a weight of this shape; head: width of a head that is normed."""
    power = width & -width
    part = head or min(64, power)
    parts = min(8, power // part)
    steps = width // (parts * part)
    many = 64 if rows >= 32_768 else 16
    return Tile(many if rows >= 2 * many else 16, parts, part, min(steps, 5 if many == 16 else 1))


def project(
    x: Tensor,
    weight: Tensor,
    *,
    norm: Tensor | None = None,
    gate: Tensor | None = None,
    swiglu_limit: float | None = None,
    residual: Tensor | None = None,
    eps: float = 1e-6,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    pdl: bool = False,
    cut: Tile | None = None,
) -> Tensor:
    """before(x) @ weight.T + residual.

    Args:
        x: (tokens, width), rows may have a stride; (tokens, 2 * width) before SwiGLU.
        weight: (rows, width), contiguous.
        norm: (width,): x is RMS-normed first. With `gate`: (head,), and each head of x is.
        gate: (tokens, width): sigmoid of it multiplies the normed heads, as KDA's output gate.
        swiglu_limit: x is gates and ups, which SwiGLU joins first; 0 for no limit.
        residual: (tokens, rows), added in fp32. May be `out`.
        eps: of the norm.
        out: (tokens, rows), where the result goes; made where None, of `dtype` or x's.
        dtype: of a result that is made.
        pdl: see `launching`.
        cut: the tile, where not the one of the table.

    Returns:
        (tokens, rows).
    """
    (tokens, _), (rows, width) = x.shape, weight.shape
    contiguous(x=x, gate=gate, residual=residual, out=out)
    gapless(weight=weight, norm=norm)
    before, head = PLAIN, 0
    if gate is not None and norm is not None:
        before, head = HEADS, norm.shape[0]
    elif norm is not None:
        before = NORM
    elif swiglu_limit is not None:
        before = SWIGLU
    wanted = 2 * width if before is SWIGLU else width
    if x.shape[1] != wanted:
        raise ValueError(f"x has width {x.shape[1]}, and the weight needs {wanted}")
    if out is None:
        out = torch.empty((tokens, rows), device=x.device, dtype=dtype or x.dtype)
    t = cut or tile(rows, width, head)
    even("width", width, t.parts * t.part)
    if head and t.part != head:
        raise ValueError(f"the tile's parts of {t.part} must be the heads of {head}")
    _project[(triton.cdiv(rows, t.rows),)](
        x,
        weight,
        weight if norm is None else norm,
        x if gate is None else gate,
        x if residual is None else residual,
        out,
        rows,
        x.stride(0),
        0 if gate is None else gate.stride(0),
        0 if residual is None else residual.stride(0),
        out.stride(0),
        eps,
        float(swiglu_limit or 0.0),
        WIDTH=width,
        TOKENS=tokens,
        BEFORE=before,
        ADD=residual is not None,
        DOT=dot_type(weight),
        ROWS=t.rows,
        PARTS=t.parts,
        PART=t.part,
        HELD=t.held,
        BLOCK=token_block(tokens),
        **options(t.parts, pdl),
    )
    return out
