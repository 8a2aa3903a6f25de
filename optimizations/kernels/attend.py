"""Attention of a few tokens over a paged cache of latents, in two kernels.

As `bubblescope.targets.ling.reference.mla`: the context is split over programs, each with 16 rows
(heads times tokens), and what they saw is joined.

The bound: 1152 bytes a position of the context, so at 1000 positions the launches and their latency
cost more than the bytes. Only positions up to the last token's are read, whatever the cache holds.
How many there are is read on the device, so a captured graph serves every length; the split into
programs is fixed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from optimizations.kernels.launching import (
    dot_type,
    even,
    gapless,
    options,
    token_block,
)

SPLITS = 32
"""Programs that share the context of 16 rows."""


@triton.jit
def _share(last, KEYS: tl.constexpr, SPLITS: tl.constexpr):
    """Positions of each split, whole blocks of keys, where `last` is the last position."""
    return tl.cdiv(tl.cdiv(last + 1, SPLITS), KEYS) * KEYS


@triton.jit
def _attend(
    queries,
    cache,
    at,
    table,
    best,
    total,
    sums,
    scale,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    RANK: tl.constexpr,
    ROPE: tl.constexpr,
    KEYS: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    DOT: tl.constexpr,
    PDL: tl.constexpr,
):
    WHOLE: tl.constexpr = RANK + ROPE
    split = tl.program_id(0)
    r = tl.program_id(1) * 16 + tl.arange(0, 16)
    c = tl.arange(0, RANK)
    p = tl.arange(0, ROPE)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    m = tl.arange(0, BLOCK)
    last = tl.max(tl.load(at + m, mask=m < TOKENS, other=0), 0).to(tl.int32)
    share = _share(last, KEYS, SPLITS)
    begin = split * share
    end = tl.minimum(begin + share, last + 1)
    inside = r[:, None] < ROWS
    sees = tl.load(at + r % TOKENS).to(tl.int32)
    row = queries + r[:, None] * WHOLE
    q = tl.load(row + c[None, :], mask=inside, other=0.0).to(DOT)
    turned = tl.load(row + RANK + p[None, :], mask=inside, other=0.0).to(DOT)
    high = tl.full((16,), float("-inf"), tl.float32)
    weight = tl.zeros((16,), tl.float32)
    seen = tl.zeros((16, RANK), tl.float32)
    first = begin
    while first < end:
        position = first + tl.arange(0, KEYS)
        there = position < end
        entry = cache + tl.load(table + position, mask=there, other=0)[:, None] * WHOLE
        latent = tl.load(entry + c[None, :], mask=there[:, None], other=0.0).to(DOT)
        turn = tl.load(entry + RANK + p[None, :], mask=there[:, None], other=0.0).to(DOT)
        score = tl.dot(q, tl.trans(latent), input_precision="ieee")
        score = tl.dot(turned, tl.trans(turn), score, input_precision="ieee")
        visible = there[None, :] & (position[None, :] <= sees[:, None])
        score = tl.where(visible, score * scale, float("-inf"))
        higher = tl.maximum(high, tl.max(score, 1))
        # A row that has seen nothing yet has no highest score to subtract.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        part = tl.exp(score - base[:, None])
        fade = tl.exp(high - base)
        weight = weight * fade + tl.sum(part, 1)
        seen = seen * fade[:, None]
        seen = tl.dot(part.to(cache.dtype.element_ty).to(DOT), latent, seen, input_precision="ieee")
        high = higher
        first += KEYS
    keep = r < ROWS
    tl.store(best + split * ROWS + r, high, mask=keep)
    tl.store(total + split * ROWS + r, weight, mask=keep)
    if begin < end:
        to = sums + (split * ROWS + r[:, None]) * RANK + c[None, :]
        tl.store(to, seen, mask=keep[:, None])


@triton.jit
def _join(
    best,
    total,
    sums,
    seen,
    ROWS: tl.constexpr,
    RANK: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    PDL: tl.constexpr,
):
    row = tl.program_id(0)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    s = tl.arange(0, SPLITS)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    high = tl.load(best + s * ROWS + row)
    weight = tl.load(total + s * ROWS + row)
    # A split that saw nothing wrote no sums.
    share = tl.where(weight > 0, tl.exp(high - tl.max(high, 0)), 0.0)
    at = sums + (s[:, None] * ROWS + row) * RANK + c[None, :]
    part = tl.load(at, mask=weight[:, None] > 0, other=0.0)
    made = tl.sum(part * share[:, None], 0) / tl.sum(weight * share, 0)
    tl.store(seen + row * RANK + c, made)


def attend(
    queries: Tensor,
    cache: Tensor,
    at: Tensor,
    table: Tensor,
    *,
    rank: int,
    scale: float,
    seen: Tensor | None = None,
    pdl: bool = False,
    splits: int = SPLITS,
    keys: int = 16,
) -> Tensor:
    """Attention of all heads over one latent a position.

    Args:
        queries: (H, T, R + P), contiguous.
        cache: (slots, R + P).
        at: position of each token, int64 (T,): it sees those up to its own.
        table: slot of every position, int64; read up to the last token's.
        rank: R, the part of a latent that values are made of.
        scale: of the scores.
        seen: (H, T, R); made where None.
        pdl: see `launching`.
        splits: programs that share the context, a power of two.
        keys: positions at a time; with 32 the compiler runs out of registers.

    Returns:
        (H, T, R).
    """
    heads, tokens, whole = queries.shape
    rows = heads * tokens
    gapless(queries=queries, cache=cache, at=at, table=table, seen=seen)
    made = {"device": queries.device, "dtype": torch.float32}
    best, total = torch.empty((2, splits, rows), **made)
    sums = torch.empty((splits, rows, rank), **made)
    if seen is None:
        seen = torch.empty((heads, tokens, rank), device=queries.device, dtype=queries.dtype)
    _attend[(splits, triton.cdiv(rows, 16))](
        queries,
        cache,
        at,
        table,
        best,
        total,
        sums,
        scale,
        ROWS=rows,
        TOKENS=tokens,
        RANK=rank,
        ROPE=whole - rank,
        KEYS=keys,
        SPLITS=splits,
        BLOCK=token_block(tokens),
        DOT=dot_type(cache),
        **options(8, pdl),
    )
    columns = min(128, rank)
    _join[(rows, even("rank", rank, columns))](
        best,
        total,
        sums,
        seen,
        ROWS=rows,
        RANK=rank,
        COLUMNS=columns,
        SPLITS=splits,
        **options(4, pdl),
    )
    return seen
