"""Around the attention over latents: what comes before it and after it, a kernel each.

As `bubblescope.targets.ling.reference.mla`: `prepare` takes queries through the key projection,
turns what has a position, and writes the tokens' latents to the cache; after `attend`, `values`
takes what was seen through the value projection and the head gates. 2.1 MB of weights of a layer
and rank with 8 heads.
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
