"""Kimi delta attention between its projections: all draft positions in one kernel.

As `bubblescope.targets.ling.reference.kda.kda`: short convolution, SiLU, L2 norm of queries and
keys, bounded decay, the delta rule token by token. The state after each token is staged, and one
kernel commits that of the last accepted token, of all layers at once.

The bound, of a layer and rank with 8 heads of 128 x 128 and 6 tokens: 0.5 MB of state read, 3.1 MB
staged. A program keeps a few rows of one head's state in registers for all tokens; it makes the
head's queries and keys itself, which is cheaper than another kernel. The gated norm needs whole
heads, so `project(..., norm=, gate=)` does it on its way into the output projection.

Nothing that is read is written: programs that start later read the same history and state.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from optimizations.kernels.launching import contiguous, even, gapless, options, token_block
from optimizations.kernels.lint import Reads

WIDTH = 4
"""Of the convolution."""

BEFORE_WAIT = {
    "_staged_kda": Reads(
        constant=("conv", "a_log", "dt_bias"),
        settled=("state", "history"),  # the input projection lies between them and a commit
    )
}


@triton.jit
def _convolve(rows, weights, T: tl.constexpr):
    """The convolution's output at token T, behind SiLU; row T + 3 is that token's input."""
    sums = rows[T] * weights[0]
    sums += rows[T + 1] * weights[1]
    sums += rows[T + 2] * weights[2]
    sums += rows[T + 3] * weights[3]
    return sums * tl.sigmoid(sums)


@triton.jit
def _staged_kda(
    qkv,
    f,
    b,
    conv,
    a_log,
    dt_bias,
    state,
    history,
    out,
    staged_state,
    staged_history,
    qkv_stride,
    f_stride,
    b_stride,
    bound,
    HEADS: tl.constexpr,
    KEY: tl.constexpr,
    VALUE: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    CHANNELS: tl.constexpr = HEADS * (2 * KEY + VALUE)
    BLOCKS: tl.constexpr = VALUE // ROWS
    head = tl.program_id(0) // BLOCKS
    block = tl.program_id(0) % BLOCKS
    k = tl.arange(0, KEY)
    v = block * ROWS + tl.arange(0, ROWS)
    q_at = head * KEY + k
    k_at = HEADS * KEY + q_at
    v_at = 2 * HEADS * KEY + head * VALUE + v
    q_conv = ()
    k_conv = ()
    v_conv = ()
    for w in tl.static_range(4):
        q_conv = q_conv + (tl.load(conv + q_at * 4 + w).to(tl.float32),)  # noqa: RUF005
        k_conv = k_conv + (tl.load(conv + k_at * 4 + w).to(tl.float32),)  # noqa: RUF005
        v_conv = v_conv + (tl.load(conv + v_at * 4 + w).to(tl.float32),)  # noqa: RUF005
    rate = tl.exp(tl.load(a_log + head))
    bias = tl.load(dt_bias + q_at)
    at = (head * VALUE + v[:, None]) * KEY + k[None, :]
    s = tl.load(state + at)
    q_rows = ()
    k_rows = ()
    v_rows = ()
    for j in tl.static_range(3):
        past = history + j * CHANNELS
        q_rows = q_rows + (tl.load(past + q_at).to(tl.float32),)  # noqa: RUF005
        k_rows = k_rows + (tl.load(past + k_at).to(tl.float32),)  # noqa: RUF005
        v_rows = v_rows + (tl.load(past + v_at).to(tl.float32),)  # noqa: RUF005
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    decays = ()
    betas = ()
    for t in tl.static_range(TOKENS):
        row = qkv + t * qkv_stride
        q_rows = q_rows + (tl.load(row + q_at).to(tl.float32),)  # noqa: RUF005
        k_rows = k_rows + (tl.load(row + k_at).to(tl.float32),)  # noqa: RUF005
        v_rows = v_rows + (tl.load(row + v_at).to(tl.float32),)  # noqa: RUF005
        fall = tl.load(f + t * f_stride + q_at).to(tl.float32)
        decays = decays + (tl.exp(bound * tl.sigmoid(rate * (fall + bias))),)  # noqa: RUF005
        beta = tl.load(b + t * b_stride + head).to(tl.float32)
        betas = betas + (tl.sigmoid(beta),)  # noqa: RUF005
    for t in tl.static_range(TOKENS):
        q = _convolve(q_rows, q_conv, t)
        key = _convolve(k_rows, k_conv, t)
        q = q * tl.rsqrt(tl.sum(q * q, 0) + 1e-6) * KEY**-0.5
        key = key * tl.rsqrt(tl.sum(key * key, 0) + 1e-6)
        s = s * decays[t][None, :]
        error = _convolve(v_rows, v_conv, t) - tl.sum(s * key[None, :], 1)
        s += (error * betas[t])[:, None] * key[None, :]
        tl.store(staged_state + t * HEADS * VALUE * KEY + at, s)
        tl.store(out + t * HEADS * VALUE + head * VALUE + v, tl.sum(s * q[None, :], 1))
    for t in tl.static_range(TOKENS):
        for j in tl.static_range(3):
            row = staged_history + (t * 3 + j) * CHANNELS
            tl.store(row + v_at, v_rows[t + 1 + j])
            if block == 0:
                tl.store(row + q_at, q_rows[t + 1 + j])
                tl.store(row + k_at, k_rows[t + 1 + j])


def staged_kda(
    qkv: Tensor,
    f: Tensor,
    b: Tensor,
    conv: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state: Tensor,
    history: Tensor,
    *,
    staged_state: Tensor,
    staged_history: Tensor,
    bound: float = -5.0,
    out: Tensor | None = None,
    pdl: bool = False,
    rows: int = 4,
    warps: int = 1,
) -> Tensor:
    """The delta rule over T tokens, H heads of K keys and V values, C = H * (2 K + V) channels.

    Args:
        qkv: projected queries, keys and values, (T, C); as f and b, rows may have a stride.
        f: projected decay, (T, H * K).
        b: projected beta, before its sigmoid, (T, H).
        conv: (C, 4), that of the newest input last.
        a_log: fp32 (H,) or (H, 1).
        dt_bias: fp32 (H, K).
        state: fp32 (H, V, K). It and `history` were final before the kernel before this began.
        history: the last inputs of the convolution, (3, C).
        staged_state: fp32 (T or more, H, V, K); the first T are written.
        staged_history: (T or more, 3, C); as `staged_state`.
        bound: least logarithm of a decay.
        out: fp32 (T, H * V); made where None.
        pdl: see `launching`.
        rows: of a state that one program keeps.
        warps: a program.

    Returns:
        fp32 (T, H * V), before the gated norm.
    """
    tokens = qkv.shape[0]
    token_block(tokens)
    heads, value, key = state.shape
    channels = heads * (2 * key + value)
    if conv.shape != (channels, WIDTH) or history.shape != (WIDTH - 1, channels):
        raise ValueError(f"the convolution must have {channels} channels and width {WIDTH}")
    if len(staged_state) < tokens or len(staged_history) < tokens:
        raise ValueError(f"{tokens} tokens, and room to stage {len(staged_state)}")
    contiguous(qkv=qkv, f=f, b=b)
    gapless(conv=conv, a_log=a_log, dt_bias=dt_bias, state=state, history=history, out=out)
    gapless(staged_state=staged_state, staged_history=staged_history)
    if out is None:
        out = torch.empty((tokens, heads * value), device=qkv.device, dtype=torch.float32)
    rows = min(rows, value)
    _staged_kda[(heads * even("values of a head", value, rows),)](
        qkv,
        f,
        b,
        conv,
        a_log,
        dt_bias,
        state,
        history,
        out,
        staged_state,
        staged_history,
        qkv.stride(0),
        f.stride(0),
        b.stride(0),
        bound,
        HEADS=heads,
        KEY=key,
        VALUE=value,
        TOKENS=tokens,
        ROWS=rows,
        **options(warps, pdl),
    )
    return out


@triton.jit
def _commit(
    tables,
    accepted,
    LAYERS: tl.constexpr,
    STATE: tl.constexpr,
    HISTORY: tl.constexpr,
    kept_type: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    layer = tl.program_id(0)
    block = tl.program_id(1)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    state_to = tl.load(tables + layer).to(tl.pointer_type(tl.float32))
    state_from = tl.load(tables + LAYERS + layer).to(tl.pointer_type(tl.float32))
    kept_to = tl.load(tables + 2 * LAYERS + layer).to(tl.pointer_type(kept_type))
    kept_from = tl.load(tables + 3 * LAYERS + layer).to(tl.pointer_type(kept_type))
    taken = tl.load(accepted)
    at = block * BLOCK + tl.arange(0, BLOCK)
    state_to = tl.multiple_of(state_to, 16)
    state_from = tl.multiple_of(state_from, 16)
    s = tl.load(state_from + taken * STATE + at, mask=at < STATE)
    tl.store(state_to + at, s, mask=at < STATE)
    kept = tl.load(kept_from + taken * HISTORY + at, mask=at < HISTORY)
    tl.store(kept_to + at, kept, mask=at < HISTORY)


class Commit:
    """Takes over, in all layers, the state after the token that was accepted last.

    Args:
        layers: of each its `state`, `staged_state`, `history` and `staged_history`, as of
            `staged_kda`. Their memory is read and written as long as this is used.
    """

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]]) -> None:
        self._kept = list(layers)
        first = self._kept[0]
        self._sizes = first[0].numel(), first[2].numel()
        for layer in self._kept:
            if (layer[0].numel(), layer[2].numel()) != self._sizes:
                raise ValueError("layers must have states of one size")
            names = ("state", "staged_state", "history", "staged_history")
            gapless(**dict(zip(names, layer, strict=True)))
            if any(t.data_ptr() % 16 for t in layer[:2]):
                raise ValueError("states must begin at multiples of 16 bytes")
        self._type = tl.bfloat16 if first[2].dtype == torch.bfloat16 else tl.float32
        addresses = [[t.data_ptr() for t in column] for column in zip(*self._kept, strict=True)]
        self._tables = torch.tensor(addresses, dtype=torch.int64).to(first[0].device)

    def __call__(self, accepted: Tensor, pdl: bool = False) -> None:
        """accepted: index of the last token accepted, int64 (1,), on the device."""
        block = 4096
        state, history = self._sizes
        _commit[(len(self._kept), triton.cdiv(max(state, history), block))](
            self._tables,
            accepted,
            LAYERS=len(self._kept),
            STATE=state,
            HISTORY=history,
            kept_type=self._type,
            BLOCK=block,
            **options(4, pdl),
        )
