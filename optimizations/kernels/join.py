"""The draft head's input: two norms and the projection of both, in one kernel.

As `bubblescope.targets.ling.reference.mtp.join`, with the embedding looked up on the way. Each half
of the width has its own norm, and so its own sums, scaled at the end; see `project`. The bound is
the weight: 26 MB for 2560 x 5120.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from optimizations.kernels.launching import contiguous, dot_type, gapless, options, token_block
from optimizations.kernels.lint import Reads
from optimizations.kernels.project import tile

BEFORE_WAIT = {"_draft_input": Reads(constant=("weight",))}


@triton.jit
def _draft_input(
    tokens,
    embedding,
    hidden,
    token_norm,
    hidden_norm,
    weight,
    out,
    rows,
    hidden_stride,
    eps,
    WIDTH: tl.constexpr,
    TOKENS: tl.constexpr,
    DOT: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    PART: tl.constexpr,
    HELD: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    STEP: tl.constexpr = PARTS * PART
    STEPS: tl.constexpr = WIDTH // STEP
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    m = tl.arange(0, BLOCK)
    first = tl.arange(0, PARTS)[:, None, None] * PART
    along = first + tl.arange(0, PART)[None, None, :]
    down = first + tl.arange(0, PART)[None, :, None]
    w_at = weight + n.to(tl.int64)[None, :, None] * (2 * WIDTH) + along
    inside = n[None, :, None] < rows
    held = ()
    for i in tl.static_range(HELD):
        w = tl.load(w_at + i * STEP, mask=inside, other=0.0, eviction_policy="evict_first")
        held = held + (w,)  # noqa: RUF005 (tuples of tensors only add)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    token = tl.load(tokens + m, mask=m < TOKENS, other=0)
    there = (m < TOKENS)[None, None, :]
    y = tl.zeros((ROWS, BLOCK), tl.float32)
    for half in tl.static_range(2):
        sums = tl.zeros((PARTS, ROWS, BLOCK), tl.float32)
        squares = tl.zeros((PARTS, PART, BLOCK), tl.float32)
        for i in tl.static_range(STEPS):
            if half == 0:
                row = embedding + token[None, None, :] * WIDTH
                norm = token_norm
            else:
                row = hidden + m[None, None, :] * hidden_stride
                norm = hidden_norm
            a = tl.load(row + i * STEP + down, mask=there, other=0.0).to(tl.float32)
            squares += a * a
            a = a * tl.load(norm + i * STEP + down).to(tl.float32)
            if half * STEPS + i < HELD:
                w = held[half * STEPS + i]
            else:
                at = w_at + half * WIDTH + i * STEP
                w = tl.load(at, mask=inside, other=0.0, eviction_policy="evict_first")
            a = a.to(weight.dtype.element_ty).to(DOT)
            sums = tl.dot(w.to(DOT), a, sums, input_precision="ieee")
        scale = tl.rsqrt(tl.sum(tl.sum(squares, 0), 0) / WIDTH + eps)
        y += tl.sum(sums, 0) * scale[None, :]
    keep = (n[:, None] < rows) & (m[None, :] < TOKENS)
    tl.store(out + m[None, :] * rows + n[:, None], y, mask=keep)


def join(
    tokens: Tensor,
    embedding: Tensor,
    hidden: Tensor,
    token_norm: Tensor,
    hidden_norm: Tensor,
    weight: Tensor,
    *,
    eps: float = 1e-6,
    out: Tensor | None = None,
    pdl: bool = False,
) -> Tensor:
    """[rms_norm(embedding[tokens]), rms_norm(hidden)] @ weight.T.

    Args:
        tokens: int64 (T,).
        embedding: (vocabulary, D), contiguous.
        hidden: (T, D), rows may have a stride.
        token_norm: (D,).
        hidden_norm: (D,).
        weight: (rows, 2 D), contiguous.
        eps: of both norms.
        out: (T, rows), contiguous; made where None, of hidden's type.
        pdl: see `launching`.

    Returns:
        (T, rows).
    """
    (count, width), rows = hidden.shape, len(weight)
    contiguous(hidden=hidden)
    gapless(tokens=tokens, embedding=embedding, weight=weight, out=out)
    if out is None:
        out = torch.empty((count, rows), device=hidden.device, dtype=hidden.dtype)
    t = tile(rows, width)
    _draft_input[(triton.cdiv(rows, t.rows),)](
        tokens,
        embedding,
        hidden,
        token_norm,
        hidden_norm,
        weight,
        out,
        rows,
        hidden.stride(0),
        eps,
        WIDTH=width,
        TOKENS=count,
        DOT=dot_type(weight),
        ROWS=t.rows,
        PARTS=t.parts,
        PART=t.part,
        HELD=t.held,
        BLOCK=token_block(count),
        **options(t.parts, pdl),
    )
    return out
