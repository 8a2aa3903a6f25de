"""The draft head's own kernels by Triton against plain torch: its input and its choice."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="triton is not installed")
torch = pytest.importorskip("torch")

from bubblescope.targets.ling.reference import mtp  # noqa: E402
from optimizations.kernels.argmax import PIECE, argmax  # noqa: E402
from optimizations.kernels.join import join  # noqa: E402
from tests.triton_device import DEVICE, FP32, NAN, ROUNDED, Draw, again, error, padded  # noqa: E402


@pytest.mark.parametrize("tokens", [1, 6, 9])
@pytest.mark.parametrize("width", [64, 1536])
def test_join(tokens: int, width: int) -> None:
    _check_join(tokens, width, 24)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="no CUDA device")
@pytest.mark.parametrize("tokens", [1, 6])
def test_join_on_cuda(tokens: int) -> None:
    _check_join(tokens, 2560, 2560)


def _check_join(tokens: int, width: int, rows: int) -> None:
    draw = Draw(tokens)
    hidden = padded(draw(tokens, width, std=3))
    embedding, weight = draw(32, width), draw.linear(rows, 2 * width)
    norms = draw.norm(width), draw.norm(width)
    said = torch.arange(tokens, device=DEVICE) * 3 + 1
    unused = torch.ones(32, dtype=torch.bool, device=DEVICE)
    unused[said] = False
    embedding[unused] = NAN
    eps = 0.1  # so large that another would be seen
    out = again(lambda: join(said, embedding, hidden, *norms, weight, eps=eps))
    expected = mtp.join(
        embedding[said].float(), hidden.float(), *(n.float() for n in norms), weight.float(), eps
    )
    assert error(out, expected) < ROUNDED


@pytest.mark.parametrize("count", [5, PIECE, PIECE + 1, 3 * PIECE - 7])
def test_argmax(count: int) -> None:
    logits = padded(Draw(count)(6, count, dtype=FP32))
    assert torch.equal(argmax(logits), logits.argmax(-1))


@pytest.mark.parametrize("places", [(3, 7), (3, PIECE + 3), (PIECE - 1, PIECE)])
def test_argmax_gives_the_first_of_equals(places: tuple[int, int]) -> None:
    logits = torch.zeros(1, 2 * PIECE, device=DEVICE)
    logits[0, list(places)] = 1.0
    assert argmax(logits).tolist() == [places[0]]


def test_argmax_below_zero() -> None:
    logits = torch.full((2, 10), -5.0, device=DEVICE)
    logits[1, 9] = -4.0
    assert argmax(logits).tolist() == [0, 9]
