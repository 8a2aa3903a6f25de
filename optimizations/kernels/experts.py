"""The experts of a few tokens and the shared one: SwiGLU into them, and their weighted sum out.

The bound is the weights of the distinct experts, 2.95 MB each on a TP4 rank (two thirds of it going
in): 6 tokens can choose 48, 144 MB with the shared one. At one token an expert there is nothing for
a matrix unit to do, so products are summed by ordinary arithmetic from registers. Tokens that chose
the same expert share one read of it on the way in: the program of the first of them takes all; on
the way out each token has its own programs, and the second read of an expert is the L2 cache's.

Sums are made in one program in a fixed order: no atomics, the same bits in every run.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from optimizations.kernels.launching import contiguous, even, gapless, options, token_block
from optimizations.kernels.lint import Reads

BEFORE_WAIT = {"_out_of": Reads(constant=("shared",))}


@triton.jit
def _into(
    x,
    into,
    shared,
    chosen,
    inner,
    x_stride,
    limit,
    shared_limit,
    WIDTH: tl.constexpr,
    INNER: tl.constexpr,
    TOKENS: tl.constexpr,
    TOP: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    SLOTS: tl.constexpr,
    PDL: tl.constexpr,
):
    ROUTED: tl.constexpr = TOKENS * TOP
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    # The shared expert comes first: it has all tokens to do.
    mine = (tl.program_id(1) + ROUTED) % (ROUTED + 1)
    at = n.to(tl.int64)[:, None] * WIDTH + tl.arange(0, CHUNK)[None, :]
    # The same for every row, so that values lie as the weights do and nothing is exchanged.
    k = tl.arange(0, CHUNK)[None, :] + tl.zeros((ROWS, CHUNK), tl.int32)
    slot = tl.arange(0, SLOTS)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    # The shared expert has the number -1, and a slot for each token behind the routed ones.
    experts = tl.load(chosen + slot, mask=slot < ROUTED, other=-1)
    members = (slot < ROUTED + TOKENS) & (experts == -1)
    base = shared
    bound = shared_limit
    if mine < ROUTED:
        expert = tl.load(chosen + mine)
        members = experts == expert
        base = into + expert * (2 * INNER * WIDTH)
        bound = limit
    if tl.min(tl.where(members, slot, SLOTS), 0) == mine:
        s = mine
        while s < SLOTS:
            token = tl.where(s < ROUTED, s // TOP, s - ROUTED)
            row = x + token * x_stride
            g = tl.zeros((ROWS, CHUNK), tl.float32)
            u = tl.zeros((ROWS, CHUNK), tl.float32)
            for i in tl.static_range(WIDTH // CHUNK):
                a = tl.load(row + i * CHUNK + k).to(tl.float32)
                w = base + at + i * CHUNK
                g += tl.load(w).to(tl.float32) * a
                u += tl.load(w + INNER * WIDTH).to(tl.float32) * a
            gate = tl.sum(g, 1)
            up = tl.sum(u, 1)
            gate = gate * tl.sigmoid(gate)
            if bound > 0:
                gate = tl.minimum(gate, bound)
                up = tl.minimum(tl.maximum(up, -bound), bound)
            tl.store(inner + s * INNER + n, gate * up)
            s = tl.min(tl.where(members & (slot > s), slot, SLOTS), 0)


@triton.jit
def _out_of(
    inner,
    out_weight,
    shared,
    chosen,
    weight,
    residual,
    out,
    residual_stride,
    out_stride,
    WIDTH: tl.constexpr,
    INNER: tl.constexpr,
    TOKENS: tl.constexpr,
    TOP: tl.constexpr,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    PDL: tl.constexpr,
):
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = tl.program_id(1)
    slot = tl.arange(0, TOP)
    k = tl.arange(0, CHUNK)
    row = n.to(tl.int64)[:, None] * INNER + k[None, :]
    held = ()
    for i in tl.static_range(INNER // CHUNK):
        held = held + (tl.load(shared + row + i * CHUNK),)  # noqa: RUF005
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    expert = tl.load(chosen + token * TOP + slot)
    at = out_weight + expert[:, None, None] * (WIDTH * INNER) + row[None, :, :]
    tiles = ()
    for i in tl.static_range(INNER // CHUNK):
        tiles = tiles + (tl.load(at + i * CHUNK, eviction_policy="evict_first"),)  # noqa: RUF005
    made = inner + (token * TOP + slot)[:, None, None] * INNER + k[None, None, :]
    made_shared = inner + (TOKENS * TOP + token) * INNER + k[None, :]
    sums = tl.zeros((TOP, ROWS, CHUNK), tl.float32)
    shared_sums = tl.zeros((ROWS, CHUNK), tl.float32)
    for i in tl.static_range(INNER // CHUNK):
        sums += tiles[i].to(tl.float32) * tl.load(made + i * CHUNK).to(tl.float32)
        shared_sums += held[i].to(tl.float32) * tl.load(made_shared + i * CHUNK).to(tl.float32)
    each = tl.load(weight + token * TOP + slot)
    y = tl.sum(tl.sum(sums, 2) * each[:, None], 0) + tl.sum(shared_sums, 1)
    if ADD:
        y += tl.load(residual + token * residual_stride + n)
    tl.store(out + token * out_stride + n, y)


def experts(
    x: Tensor,
    into: Tensor,
    out_of: Tensor,
    shared_into: Tensor,
    shared_out_of: Tensor,
    chosen: Tensor,
    weight: Tensor,
    *,
    limit: float = 0.0,
    shared_limit: float = 0.0,
    residual: Tensor | None = None,
    inner: Tensor | None = None,
    out: Tensor | None = None,
    pdl: bool = False,
    rows: int = 4,
    registers: int | None = 128,
    out_rows: int | None = None,
) -> Tensor:
    """Return residual + shared expert + weighted sum of each token's experts.

    Args:
        x: T tokens of width D, (T, D), rows may have a stride.
        into: E experts of width F, (E, 2 F, D), gates first.
        out_of: (E, D, F).
        shared_into: (2 F, D).
        shared_out_of: (D, F).
        chosen: int64 (T, N), contiguous; N is a power of two.
        weight: fp32 (T, N), contiguous.
        limit: clamp of the routed experts' SwiGLU: silu(gate) to at most it, up to both sides; 0:
            none.
        shared_limit: the same of the shared one.
        residual: (T, D), added in fp32. May be `out`.
        inner: what lies between the two kernels, (T * (N + 1), F); made where None.
        out: (T, D); made where None, of x's type.
        pdl: see `launching`.
        rows: gates, and as many ups, of a program on the way in.
        registers: of a thread on the way in, see `launching.options`.
        out_rows: rows of a program on the way out; where None, by the number of tokens.

    Returns:
        (T, D).
    """
    (tokens, width), (_, top), size = x.shape, chosen.shape, out_of.shape[2]
    token_block(tokens)
    if shared_out_of.shape != (width, size) or shared_into.shape != (2 * size, width):
        raise ValueError("the shared expert must be as wide as the others")
    contiguous(x=x, residual=residual, out=out)
    gapless(into=into, out_of=out_of, shared_into=shared_into, shared_out_of=shared_out_of)
    gapless(chosen=chosen, weight=weight, inner=inner)
    routed = tokens * top
    if inner is None:
        inner = torch.empty((routed + tokens, size), device=x.device, dtype=x.dtype)
    if out is None:
        out = torch.empty((tokens, width), device=x.device, dtype=x.dtype)
    _into[(even("width of an expert", size, rows), routed + 1)](
        x,
        into,
        shared_into,
        chosen,
        inner,
        x.stride(0),
        float(limit),
        float(shared_limit),
        WIDTH=width,
        INNER=size,
        TOKENS=tokens,
        TOP=top,
        ROWS=rows,
        CHUNK=min(256, width & -width),
        SLOTS=triton.next_power_of_2(routed + tokens),
        **options(rows, pdl, registers),
    )
    n = out_rows or (8 if tokens == 1 else 16)
    _out_of[(even("width", width, n), tokens)](
        inner,
        out_of,
        shared_out_of,
        chosen,
        weight,
        x if residual is None else residual,
        out,
        0 if residual is None else residual.stride(0),
        out.stride(0),
        WIDTH=width,
        INNER=size,
        TOKENS=tokens,
        TOP=top,
        ADD=residual is not None,
        ROWS=n,
        CHUNK=min(64, size & -size),
        **options(8, pdl),
    )
    return out
