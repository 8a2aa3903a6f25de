"""Projections by Triton against plain torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("triton", reason="triton is not installed")
torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from bubblescope.targets.ling.reference import moe, norms  # noqa: E402
from optimizations.kernels.project import Tile, project, tile  # noqa: E402
from tests.triton_device import (  # noqa: E402
    BF16,
    DEVICE,
    EXACT,
    FP32,
    NAN,
    ROUNDED,
    Draw,
    again,
    error,
    padded,
    unwritten,
)

TOKENS = (1, 6, 9, 16)
# A width of whole steps, of one step, of odd parts; rows that do not fill the last program.
SHAPES = ((24, 512), (72, 1536), (40, 192), (16, 64))
RANK = ((5136, 2560), (2560, 1024), (2560, 1536), (2128, 2560), (39_296, 2560), (2560, 5120))
gpu = pytest.mark.skipif(DEVICE != "cuda", reason="no CUDA device")


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_it_multiplies(tokens: int, rows: int, width: int) -> None:
    _check(tokens, rows, width)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("tokens", [1, 6, 9])
@pytest.mark.parametrize(("rows", "width"), RANK)
def test_it_multiplies_on_cuda(tokens: int, rows: int, width: int) -> None:
    _check(tokens, rows, width)


def _check(tokens: int, rows: int, width: int) -> None:
    draw = Draw(tokens)
    x, weight = padded(draw(tokens, width)), draw.linear(rows, width)
    out = unwritten(tokens, rows, dtype=FP32)
    assert project(x, weight, out=out) is out
    again(lambda: project(x, weight, norm=x[0], dtype=FP32))
    assert error(out, x.float() @ weight.float().t()) < EXACT


@pytest.mark.parametrize("tokens", [1, 6, 9])
@pytest.mark.parametrize("width", [512, 192])
def test_a_norm_before_and_a_residual_after(tokens: int, width: int) -> None:
    draw = Draw(1)
    x, weight, norm = draw(tokens, width, std=3), draw.linear(40, width), draw.norm(width)
    residual = padded(draw(tokens, 40))
    expected = torch.rms_norm(x.float(), (width,), norm.float(), 1e-6) @ weight.float().t()
    out = residual.clone()
    project(x, weight, norm=norm, residual=out, out=out)
    assert error(out, expected + residual.float()) < ROUNDED


def test_the_eps_of_a_norm_is_heeded() -> None:
    draw = Draw(2)
    x, weight, norm = draw(2, 64, std=1e-3), draw.linear(16, 64), draw.norm(64)
    expected = torch.rms_norm(x.float(), (64,), norm.float(), 1e-2) @ weight.float().t()
    assert error(project(x, weight, norm=norm, eps=1e-2, dtype=FP32), expected) < ROUNDED


@pytest.mark.parametrize("tokens", [1, 6])
@pytest.mark.parametrize(("heads", "size"), [(8, 128), (2, 32), (6, 32)])
def test_gated_norms_of_heads_before(tokens: int, heads: int, size: int) -> None:
    draw = Draw(3)
    x, gate = draw(tokens, heads * size, dtype=FP32), padded(draw(tokens, heads * size))
    weight, norm = draw.linear(40, heads * size), draw.norm(size)
    normed = norms.gated_rms_norm(
        x.unflatten(1, (heads, size)), norm, gate.unflatten(1, (heads, size)), 0.1
    )
    expected = normed.flatten(1) @ weight.float().t()
    out = project(x, weight, norm=norm, gate=gate, eps=0.1, dtype=FP32)
    assert error(out, expected) < ROUNDED


@pytest.mark.parametrize("limit", [0.0, 0.5, 0.1])
def test_swiglu_before(limit: float) -> None:
    draw = Draw(4)
    both, weight = padded(draw(6, 2 * 192)), draw.linear(40, 192)
    expected = moe.swiglu(both.float(), limit) @ weight.float().t()
    assert error(project(both, weight, swiglu_limit=limit, dtype=FP32), expected) < ROUNDED


def test_a_token_does_not_change_another() -> None:
    """Bit for bit: alone, beside others, beside NaN, and in each place."""
    draw = Draw(5)
    x, weight, norm = draw(6, 512), draw.linear(24, 512), draw.norm(512)
    together = project(x, weight, norm=norm)
    for place in range(6):
        poisoned = torch.full_like(x, NAN)
        poisoned[place] = x[place]
        assert torch.equal(project(poisoned, weight, norm=norm)[place], together[place])
    assert torch.equal(project(x[3:4], weight, norm=norm)[0], together[3])


def test_again_it_gives_the_same_bits() -> None:
    draw = Draw(6)
    x, weight = draw(6, 1536), draw.linear(72, 1536)
    assert torch.equal(project(x, weight), project(x, weight))


@pytest.mark.parametrize("cut", [Tile(16, 8, 64, 0), Tile(32, 4, 128, 1), Tile(64, 2, 64, 2)])
def test_another_cut_gives_the_same(cut: Tile) -> None:
    draw = Draw(7)
    x, weight = draw(6, 512), draw.linear(72, 512)
    cut_so = project(x, weight, cut=cut, dtype=FP32)
    assert error(cut_so, project(x, weight, dtype=FP32)) < EXACT


@pytest.mark.parametrize(("rows", "width"), RANK)
def test_the_table_cuts_widths_evenly(rows: int, width: int) -> None:
    t = tile(rows, width)
    assert width % (t.parts * t.part) == 0
    assert 1 <= t.held <= width // (t.parts * t.part)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x, w: project(x[:, :32], w), "width 32, and the weight needs 64"),
        (lambda x, w: project(x.t(), w), "x: the last dimension must be contiguous"),
        (lambda x, w: project(x[:, :32], w[:, :32]), "weight: must be contiguous"),
        (lambda x, w: project(x, w, cut=Tile(16, 4, 64, 0)), "width: 64 is no multiple of 256"),
        (
            lambda x, w: project(x, w, norm=w[0, :32], gate=x, cut=Tile(16, 1, 64, 0)),
            "parts of 64 must be the heads of 32",
        ),
        (lambda x, w: project(x[:0], w), "0 tokens: a launch takes 1 to 16"),
        (lambda x, w: project(x.repeat(9, 1), w), "18 tokens"),
    ],
)
def test_what_it_cannot_take_is_said(call: Callable[[Tensor, Tensor], Tensor], said: str) -> None:
    draw = Draw(8)
    with pytest.raises(ValueError, match=said):
        call(draw(2, 64), draw.linear(16, 64))


def test_the_result_has_the_type_of_x() -> None:
    draw = Draw(9)
    assert project(draw(1, 64), draw.linear(16, 64)).dtype == BF16
