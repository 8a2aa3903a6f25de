"""The router of a mixture of experts: gate, sigmoid, groups and top-k, in two kernels.

The gate is 2.6 MB in bf16 for 512 experts of 2560 inputs, 5.2 MB in fp32; it is read once. It norms
the tokens on its way, rounds them as the norm alone does, and leaves them for the experts. Products
are summed in fp32 for either type, without matrix units, so that near ties fall as in the reference
(`bubblescope.targets.ling.reference.moe.route`). Both are not one kernel: a token's choice needs
all experts' scores, and the gate needs all multiprocessors.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from optimizations.kernels.launching import contiguous, gapless, options, token_block
from optimizations.kernels.lint import Reads

BEFORE_WAIT = {"_gate": Reads(constant=("weight",)), "_choose": Reads(constant=("bias",))}


@triton.jit
def _gate(
    x,
    norm,
    weight,
    logits,
    normed,
    experts,
    x_stride,
    eps,
    WIDTH: tl.constexpr,
    TOKENS: tl.constexpr,
    NORM: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    # The same for every row, so that values lie as the weights do and nothing is exchanged.
    k = tl.arange(0, CHUNK)[None, :] + tl.zeros((ROWS, CHUNK), tl.int32)
    held = ()
    for i in tl.static_range(WIDTH // CHUNK):
        at = n.to(tl.int64)[:, None] * WIDTH + i * CHUNK + k
        held = held + (tl.load(weight + at, mask=n[:, None] < experts, other=0.0),)  # noqa: RUF005
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    for t in tl.static_range(TOKENS):
        row = x + t * x_stride
        values = ()
        squares = tl.zeros((ROWS, CHUNK), tl.float32)
        for i in tl.static_range(WIDTH // CHUNK):
            a = tl.load(row + i * CHUNK + k).to(tl.float32)
            squares += a * a
            values = values + (a,)  # noqa: RUF005
        scale = tl.rsqrt(tl.sum(squares, 1) / WIDTH + eps)[:, None]
        sums = tl.zeros((ROWS, CHUNK), tl.float32)
        for i in tl.static_range(WIDTH // CHUNK):
            a = values[i]
            if NORM:
                a = a * scale * tl.load(norm + i * CHUNK + k).to(tl.float32)
                a = a.to(normed.dtype.element_ty)
                if tl.program_id(0) == 0:
                    tl.store(normed + t * WIDTH + i * CHUNK + k, a, mask=n[:, None] == 0)
                a = a.to(tl.float32)
            sums += held[i].to(tl.float32) * a
        tl.store(logits + t * experts + n, tl.sum(sums, 1), mask=n < experts)


def gate(
    x: Tensor,
    weight: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    logits: Tensor | None = None,
    normed: Tensor | None = None,
    pdl: bool = False,
    rows: int = 4,
) -> tuple[Tensor, Tensor]:
    """Scores of T tokens of width D for E experts, before the sigmoid.

    Args:
        x: (T, D), rows may have a stride.
        weight: fp32 or bf16, (E, D).
        norm: (D,): x is RMS-normed first; where None it is as it is.
        eps: of the norm.
        logits: fp32 (T, E); made where None.
        normed: (T, D) of x's type; made where None and there is a norm.
        pdl: see `launching`.
        rows: experts a program.

    Returns:
        fp32 (T, E), and the normed tokens (T, D), or x.
    """
    (tokens, width), experts = x.shape, len(weight)
    contiguous(x=x)
    gapless(weight=weight, norm=norm, logits=logits, normed=normed)
    if logits is None:
        logits = torch.empty((tokens, experts), device=x.device, dtype=torch.float32)
    if normed is None:
        normed = x if norm is None else torch.empty((tokens, width), device=x.device, dtype=x.dtype)
    _gate[(triton.cdiv(experts, rows),)](
        x,
        weight if norm is None else norm,
        weight,
        logits,
        normed,
        experts,
        x.stride(0),
        eps,
        WIDTH=width,
        TOKENS=tokens,
        NORM=norm is not None,
        ROWS=rows,
        CHUNK=min(256, width & -width),
        BLOCK=token_block(tokens),
        **options(4, pdl),
    )
    return logits, normed


@triton.jit
def _choose(
    logits,
    bias,
    chosen,
    weight,
    scale,
    EXPERTS: tl.constexpr,
    GROUPS: tl.constexpr,
    KEPT: tl.constexpr,
    TOP: tl.constexpr,
    PDL: tl.constexpr,
):
    SIZE: tl.constexpr = EXPERTS // GROUPS
    token = tl.program_id(0)
    e = tl.arange(0, EXPERTS)
    shift = tl.load(bias + e)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    score = tl.sigmoid(tl.load(logits + token * EXPERTS + e))
    least = float("-inf")
    grouped = tl.reshape(score + shift, (GROUPS, SIZE))
    column = tl.arange(0, SIZE)[None, :]
    best = tl.max(grouped, 1)
    rest = tl.where(column == tl.argmax(grouped, 1)[:, None], least, grouped)
    of_group = best + tl.max(rest, 1)
    g = tl.arange(0, GROUPS)
    # Groups before this one in order of score, then of number.
    mine = tl.sum(tl.where(g[:, None] == g[None, :], of_group[None, :], 0.0), 1)[:, None]
    higher = (of_group[None, :] > mine) | ((of_group[None, :] == mine) & (g[None, :] < g[:, None]))
    kept = tl.sum(higher.to(tl.int32), 1) < KEPT
    left = tl.reshape(tl.where(kept[:, None], grouped, least), (EXPERTS,))
    slot = tl.arange(0, TOP)
    experts = tl.zeros((TOP,), tl.int64)
    weights = tl.zeros((TOP,), tl.float32)
    for j in tl.static_range(TOP):
        i = tl.argmax(left, 0)
        value = tl.sum(tl.where(e == i, score, 0.0), 0)
        left = tl.where(e == i, least, left)
        experts = tl.where(slot == j, i.to(tl.int64), experts)
        weights = tl.where(slot == j, value, weights)
    tl.store(chosen + token * TOP + slot, experts)
    tl.store(weight + token * TOP + slot, weights / tl.sum(weights, 0) * scale)


def choose(
    logits: Tensor,
    bias: Tensor,
    *,
    groups: int,
    top_groups: int,
    top: int,
    scale: float,
    chosen: Tensor | None = None,
    weight: Tensor | None = None,
    pdl: bool = False,
) -> tuple[Tensor, Tensor]:
    """Experts of each token and their weights; as `reference.moe.route`, ties to the lower number.

    Args:
        logits: fp32 (T, E), contiguous; E is a power of two.
        bias: fp32 (E,): chooses, but does not weigh.
        groups: G of E / G experts each.
        top_groups: groups kept, by the sum of their two best.
        top: N experts a token, a power of two.
        scale: what a token's weights add up to.
        chosen: int64 (T, N); made where None.
        weight: fp32 (T, N); made where None.
        pdl: see `launching`.

    Returns:
        int64 (T, N), the best first, and fp32 (T, N).
    """
    tokens, experts = logits.shape
    gapless(logits=logits, bias=bias, chosen=chosen, weight=weight)
    if chosen is None:
        chosen = torch.empty((tokens, top), device=logits.device, dtype=torch.int64)
    if weight is None:
        weight = torch.empty((tokens, top), device=logits.device, dtype=torch.float32)
    _choose[(tokens,)](
        logits,
        bias,
        chosen,
        weight,
        scale,
        EXPERTS=experts,
        GROUPS=groups,
        KEPT=top_groups,
        TOP=top,
        **options(1, pdl),
    )
    return chosen, weight
