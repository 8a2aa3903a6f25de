"""Attention of a few draft tokens over a paged cache of latents, the context split over programs.

SGLang's Triton backend verifies drafts with its kernel for prompts: one program a head walks the
whole context, eight on an H200 for a rank of Ling, 160 us at some 700 positions. Here the context
is split as in `attend`; a last split takes the drafts themselves, each of which sees those
before it. The bound, of a layer: 1152 bytes a position, read from the cache once.

How long the context is is read on the device, so a captured graph serves every length.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from optimizations.kernels.attend import _join, _share
from optimizations.kernels.launching import dot_type, options

SPLITS = 32
"""Programs that share the context of 16 rows, the last of them for the drafts."""
TOKENS = 8
"""Drafts at most: a block of 16 rows takes two heads."""


@triton.jit
def _verify(
    q,
    latents,
    cache,
    context,
    table,
    best,
    total,
    sums,
    scale,
    q_token,
    q_head,
    latent_token,
    cache_slot,
    COUNT: tl.constexpr,
    HEADS: tl.constexpr,
    RANK: tl.constexpr,
    ROPE: tl.constexpr,
    KEYS: tl.constexpr,
    SPLITS: tl.constexpr,
    PAD: tl.constexpr,
    DOT: tl.constexpr,
    PDL: tl.constexpr,
):
    split = tl.program_id(0)
    r = tl.arange(0, 16)
    token = r % PAD
    head = tl.program_id(1) * (16 // PAD) + r // PAD
    inside = (token < COUNT) & (head < HEADS)
    c = tl.arange(0, RANK)
    p = tl.arange(0, ROPE)
    row = q + token[:, None] * q_token + head[:, None] * q_head
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    asked = tl.load(row + c[None, :], mask=inside[:, None], other=0.0).to(DOT)
    turned = tl.load(row + RANK + p[None, :], mask=inside[:, None], other=0.0).to(DOT)
    first = tl.load(context)
    length = tl.load(context + 1) - first
    drafts = split == SPLITS - 1
    share = _share(length - 1, KEYS, SPLITS - 1)
    begin = tl.where(drafts, 0, split * share)
    end = tl.where(drafts, COUNT, tl.minimum(begin + share, length))
    high = tl.full((16,), float("-inf"), tl.float32)
    weight = tl.zeros((16,), tl.float32)
    seen = tl.zeros((16, RANK), tl.float32)
    at = begin
    while at < end:
        position = at + tl.arange(0, KEYS)
        there = position < end
        if drafts:
            entry = latents + position[:, None] * latent_token
        else:
            slot = tl.load(table + first + position, mask=there, other=0).to(tl.int64)
            entry = cache + slot[:, None] * cache_slot
        latent = tl.load(entry + c[None, :], mask=there[:, None], other=0.0).to(DOT)
        turn = tl.load(entry + RANK + p[None, :], mask=there[:, None], other=0.0).to(DOT)
        score = tl.dot(asked, tl.trans(latent), input_precision="ieee")
        score = tl.dot(turned, tl.trans(turn), score, input_precision="ieee")
        # Of the context all is seen, of the drafts those up to the token's own.
        visible = there[None, :] & ((position[None, :] <= token[:, None]) | (split < SPLITS - 1))
        score = tl.where(visible, score * scale, float("-inf"))
        higher = tl.maximum(high, tl.max(score, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        part = tl.exp(score - base[:, None])
        fade = tl.exp(high - base)
        weight = weight * fade + tl.sum(part, 1)
        seen = seen * fade[:, None]
        seen = tl.dot(part.to(cache.dtype.element_ty).to(DOT), latent, seen, input_precision="ieee")
        high = higher
        at += KEYS
    kept = token * HEADS + head
    rows: tl.constexpr = COUNT * HEADS
    tl.store(best + split * rows + kept, high, mask=inside)
    tl.store(total + split * rows + kept, weight, mask=inside)
    if begin < end:
        to = sums + (split * rows + kept[:, None]) * RANK + c[None, :]
        tl.store(to, seen, mask=inside[:, None])


def fits(q: Tensor, latents: Tensor, cache: Tensor, rank: int, context: Tensor) -> bool:
    """Whether `verify` takes these: one sequence, few drafts, one latent for all heads."""
    return (
        len(context) == 2
        and 1 <= len(q) <= TOKENS
        and len(q) == len(latents)
        and latents.shape[1] == cache.shape[1] == 1
        and q.shape[-1] == latents.shape[-1] == cache.shape[-1]
        and rank in (64, 128, 256, 512)
        and q.shape[-1] - rank in (16, 32, 64, 128)
        and q.dtype == latents.dtype == cache.dtype
    )


def verify(
    q: Tensor,
    latents: Tensor,
    cache: Tensor,
    context: Tensor,
    table: Tensor,
    *,
    rank: int,
    scale: float,
    out: Tensor | None = None,
    pdl: bool = False,
) -> Tensor:
    """Attention over the context and, causally, over the drafts themselves.

    Args:
        q: queries against latents, (T, H, R + P), T at most `TOKENS`.
        latents: of the drafts, (T, 1, R + P).
        cache: (slots, 1, R + P).
        context: where the sequence's part of `table` begins and ends, int32 (2,).
        table: slots of the context's positions, an integer type.
        rank: R, the part of a latent that values are made of.
        scale: of the scores.
        out: (T, H, R), contiguous; made where None.
        pdl: see `launching`.

    Returns:
        (T, H, R).
    """
    count, heads, whole = q.shape
    pad = 1 << (count - 1).bit_length()
    rows = count * heads
    made = {"device": q.device, "dtype": torch.float32}
    best, total = torch.empty((2, SPLITS, rows), **made)
    sums = torch.empty((SPLITS, rows, rank), **made)
    if out is None:
        out = torch.empty((count, heads, rank), device=q.device, dtype=q.dtype)
    _verify[(SPLITS, triton.cdiv(heads, 16 // pad))](
        q,
        latents,
        cache,
        context,
        table,
        best,
        total,
        sums,
        scale,
        q.stride(0),
        q.stride(1),
        latents.stride(0),
        cache.stride(0),
        COUNT=count,
        HEADS=heads,
        RANK=rank,
        ROPE=whole - rank,
        KEYS=32,
        SPLITS=SPLITS,
        PAD=pad,
        DOT=dot_type(cache),
        **options(8, pdl),
    )
    columns = min(128, rank)
    _join[(rows, rank // columns)](
        best,
        total,
        sums,
        out,
        ROWS=rows,
        RANK=rank,
        COLUMNS=columns,
        SPLITS=SPLITS,
        **options(4, pdl),
    )
    return out
