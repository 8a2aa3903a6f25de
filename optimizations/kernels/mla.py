"""Multi-head latent attention of a few tokens over a paged cache of latents, in four kernels.

As `bubblescope.targets.ling.reference.mla`: `prepare` takes queries through the key projection,
turns what has a position, and writes the tokens' latents to the cache; `attend` splits the context
over programs, each with 16 rows (heads times tokens); its halves are joined, and `values` takes
what was seen through the value projection and the head gates.

The bound, of a layer and rank with 8 heads: 2.1 MB of weights, and 1152 bytes a position of the
context, so at 1000 positions the launches and their latency cost more than the bytes. Only
positions up to the last token's are read, whatever the cache holds. How many there are is read on
the device, so a captured graph serves every length; the split into programs is fixed.
"""

from __future__ import annotations

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

SPLITS = 32
"""Programs that share the context of 16 rows."""

BEFORE_WAIT = {"_prepare": Reads(constant=("key", "norm")), "_values": Reads(constant=("value",))}


@triton.jit
def _rotate(even, odd, cosine, sine):
    """Both members of rotated pairs, in fp32."""
    even = even.to(tl.float32)
    odd = odd.to(tl.float32)
    return even * cosine - odd * sine, odd * cosine + even * sine


@triton.jit
def _prepare(
    q,
    kv,
    key,
    norm,
    cosines,
    sines,
    at,
    slots,
    queries,
    cache,
    q_stride,
    kv_stride,
    eps,
    HEADS: tl.constexpr,
    NOPE: tl.constexpr,
    RANK: tl.constexpr,
    PAIRS: tl.constexpr,
    TOKENS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    DOT: tl.constexpr,
    PDL: tl.constexpr,
):
    BLOCKS: tl.constexpr = RANK // COLUMNS
    WHOLE: tl.constexpr = RANK + 2 * PAIRS
    pair = tl.arange(0, PAIRS)
    if tl.program_id(0) < HEADS * BLOCKS:
        head = tl.program_id(0) // BLOCKS
        n = tl.arange(0, NOPE)
        columns = (tl.program_id(0) % BLOCKS) * COLUMNS + tl.arange(0, COLUMNS)
        w = tl.load(key + (head * NOPE + n[:, None]) * RANK + columns[None, :])
        if PDL:
            gdc_wait()
            gdc_launch_dependents()
        m = tl.arange(0, BLOCK)
        inside = m[:, None] < TOKENS
        row = q + m[:, None] * q_stride + head * (NOPE + 2 * PAIRS)
        a = tl.load(row + n[None, :], mask=inside, other=0.0)
        to = queries + (head * TOKENS + m[:, None]) * WHOLE
        made = tl.dot(a.to(DOT), w.to(DOT), input_precision="ieee")
        tl.store(to + columns[None, :], made, mask=inside)
        if tl.program_id(0) % BLOCKS == 0:
            position = tl.load(at + m, mask=m < TOKENS, other=0)
            angle = position[:, None] * PAIRS + pair[None, :]
            evens = tl.load(row + NOPE + 2 * pair[None, :], mask=inside, other=0.0)
            odds = tl.load(row + NOPE + 2 * pair[None, :] + 1, mask=inside, other=0.0)
            evens, odds = _rotate(evens, odds, tl.load(cosines + angle), tl.load(sines + angle))
            tl.store(to + RANK + 2 * pair[None, :], evens, mask=inside)
            tl.store(to + RANK + 2 * pair[None, :] + 1, odds, mask=inside)
    else:
        c = tl.arange(0, RANK)
        weigh = tl.load(norm + c).to(tl.float32)
        if PDL:
            gdc_wait()
            gdc_launch_dependents()
        token = tl.program_id(0) - HEADS * BLOCKS
        latent = kv + token * kv_stride
        entry = cache + tl.load(slots + token) * WHOLE
        b = tl.load(latent + c).to(tl.float32)
        tl.store(entry + c, b * tl.rsqrt(tl.sum(b * b, 0) / RANK + eps) * weigh)
        turn = tl.load(at + token) * PAIRS + pair
        even = tl.load(latent + RANK + 2 * pair)
        odd = tl.load(latent + RANK + 2 * pair + 1)
        even, odd = _rotate(even, odd, tl.load(cosines + turn), tl.load(sines + turn))
        tl.store(entry + RANK + 2 * pair, even)
        tl.store(entry + RANK + 2 * pair + 1, odd)


def prepare(
    q: Tensor,
    kv: Tensor,
    key: Tensor,
    norm: Tensor,
    cosines: Tensor,
    sines: Tensor,
    at: Tensor,
    slots: Tensor,
    cache: Tensor,
    *,
    eps: float = 1e-6,
    queries: Tensor | None = None,
    pdl: bool = False,
) -> Tensor:
    """Queries against latents; the tokens' latents go into the cache.

    Args:
        q: projected, (T, H * (K + P)), the part with a position last in each head; as kv, rows
            may have a stride.
        kv: projected, (T, R + P).
        key: (H, K, R).
        norm: of the latents, (R,).
        cosines: fp32 (positions, P / 2), as `sines`.
        sines: of every position.
        at: position of each token, int64 (T,).
        slots: where in the cache each token goes, int64 (T,).
        cache: (slots, R + P), written at `slots`.
        eps: of the norm.
        queries: (H, T, R + P); made where None.
        pdl: see `launching`.

    Returns:
        (H, T, R + P).
    """
    tokens, (heads, nope, rank), pairs = len(q), key.shape, cosines.shape[1]
    contiguous(q=q, kv=kv)
    gapless(key=key, norm=norm, cosines=cosines, sines=sines, at=at, slots=slots)
    gapless(cache=cache, queries=queries)
    token_block(tokens)
    if queries is None:
        queries = torch.empty((heads, tokens, rank + 2 * pairs), device=q.device, dtype=q.dtype)
    columns = min(64, rank)
    _prepare[(heads * even("rank", rank, columns) + tokens,)](
        q,
        kv,
        key,
        norm,
        cosines,
        sines,
        at,
        slots,
        queries,
        cache,
        q.stride(0),
        kv.stride(0),
        eps,
        HEADS=heads,
        NOPE=nope,
        RANK=rank,
        PAIRS=pairs,
        TOKENS=tokens,
        COLUMNS=columns,
        BLOCK=16,
        DOT=dot_type(key),
        **options(4, pdl),
    )
    return queries


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


@triton.jit
def _values(
    seen,
    value,
    gate,
    out,
    gate_stride,
    HEADS: tl.constexpr,
    VALUE: tl.constexpr,
    RANK: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    DOT: tl.constexpr,
    PDL: tl.constexpr,
):
    head = tl.program_id(0)
    v = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, RANK)
    m = tl.arange(0, BLOCK)
    w = tl.load(value + (head * VALUE + v[:, None]) * RANK + c[None, :])
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    inside = m[None, :] < TOKENS
    a = tl.load(seen + (head * TOKENS + m[None, :]) * RANK + c[:, None], mask=inside, other=0.0)
    open_ = tl.load(gate + m * gate_stride + head, mask=m < TOKENS, other=0.0).to(tl.float32)
    made = tl.dot(w.to(DOT), a.to(DOT), input_precision="ieee") * tl.sigmoid(open_)[None, :]
    tl.store(out + m[None, :] * HEADS * VALUE + head * VALUE + v[:, None], made, mask=inside)


def values(
    seen: Tensor,
    value: Tensor,
    gate: Tensor,
    *,
    out: Tensor | None = None,
    pdl: bool = False,
    rows: int = 32,
) -> Tensor:
    """Values of what was seen, times sigmoid(gate) of each head.

    Args:
        seen: (H, T, R), contiguous.
        value: (H, V, R).
        gate: projected, (T, H); rows may have a stride.
        out: (T, H * V), contiguous; made where None.
        pdl: see `launching`.
        rows: values a program.

    Returns:
        (T, H * V) for the output projection.
    """
    (heads, size, rank), tokens = value.shape, seen.shape[1]
    contiguous(gate=gate)
    gapless(seen=seen, value=value, out=out)
    if out is None:
        out = torch.empty((tokens, heads * size), device=seen.device, dtype=seen.dtype)
    _values[(heads, even("values of a head", size, rows))](
        seen,
        value,
        gate,
        out,
        gate.stride(0),
        HEADS=heads,
        VALUE=size,
        RANK=rank,
        TOKENS=tokens,
        ROWS=rows,
        BLOCK=token_block(tokens),
        DOT=dot_type(value),
        **options(max(1, rows // 16), pdl),
    )
    return out
