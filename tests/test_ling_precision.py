"""What stays fp32 where weights and activations are bf16, as they are on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.kda import Kda  # noqa: E402
from bubblescope.targets.ling.model import Model  # noqa: E402
from bubblescope.targets.ling.moe import Moe  # noqa: E402
from bubblescope.targets.ling.reference import kda, mla, moe, rope  # noqa: E402
from bubblescope.targets.ling.weights import Weights  # noqa: E402

CONFIG = Config.tiny()
BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def weights() -> Weights:
    return Weights(1, "cpu", BF16)


def draw(*shape: int, seed: int = 5, std: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * std).to(BF16)


def error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


def test_the_state_and_what_is_staged_of_it_are_fp32() -> None:
    layer = Kda(CONFIG, weights())
    assert layer.qkv.dtype == layer.history.dtype == layer.staged_history.dtype == BF16
    assert layer.state.dtype == layer.staged_state.dtype == torch.float32
    layer(draw(2, CONFIG.hidden))
    kept = layer.staged_state[1]
    assert not torch.equal(kept, kept.to(BF16).float())  # it has more digits than bf16


def test_between_its_projections_a_layer_rounds_nothing() -> None:
    """bf16 projections and the same values in fp32 give the same, to fp32's own precision."""
    c, layer = CONFIG, Kda(CONFIG, weights())
    layer.state.copy_(draw(*layer.state.shape, seed=2))
    layer.history.copy_(draw(*layer.history.shape, seed=3))
    x = draw(c.window, c.hidden)
    projected = [x @ w.t() for w in (layer.qkv, layer.decay, layer.beta, layer.gate)]
    fixed = layer.conv, layer.a_log, layer.dt_bias
    wide = [p.float() for p in projected]
    norm, history = layer.norm.float(), layer.history.float()
    expected = kda.kda(*wide, *fixed, norm, layer.state, history, c.gate_bound, c.eps)
    narrow = kda.kda(
        *projected, *fixed, layer.norm, layer.state, layer.history, c.gate_bound, c.eps
    )
    out = layer(x)
    for made in (narrow[1], layer.staged_state):
        assert error(made, expected[1]) < 1e-6
    assert error(narrow[0], expected[0]) < 1e-6
    assert torch.equal(layer.staged_history, narrow[2])
    # Rounded once, for the output projection.
    torch.testing.assert_close(out, expected[0].to(BF16) @ layer.out.t(), rtol=0, atol=2**-8)


def test_experts_are_chosen_from_fp32_products() -> None:
    layer = Moe(CONFIG, 0, 0, weights())
    assert layer.router.dtype == layer.bias.dtype == torch.float32
    x = draw(64, CONFIG.hidden)
    logits = (x.double() @ layer.router.double().t()).float()
    shape = CONFIG.expert_groups, CONFIG.top_groups, CONFIG.top_experts
    chosen, weight = layer.route(x)
    expected, share = moe.route(logits, layer.bias, *shape, CONFIG.routed_scale)
    assert torch.equal(chosen, expected)
    assert weight.dtype == torch.float32
    assert error(weight, share) < 1e-6


def test_logits_are_fp32_products_of_what_is_bf16() -> None:
    model = Model(CONFIG, weights())
    hidden = draw(5, CONFIG.hidden)
    logits = model.logits(hidden)
    assert logits.dtype == model.head.dtype == torch.float32
    assert torch.equal(model.head, model.head.to(BF16).float())  # the values are those of bf16
    assert error(logits, hidden.double() @ model.head.double().t()) < 1e-6


def test_scores_and_softmax_are_fp32() -> None:
    """Scores far apart. Weights and result are rounded to bf16, 0.2 % in all; scores rounded too
    would make it over 0.4 %.
    """
    q, cache, at = draw(2, 3, 48, std=3), draw(40, 48, seed=6), torch.tensor([37, 38, 39])
    made = mla.attention(q, cache, at, 32, 0.3)
    scores = q.double() @ cache.double().t() * 0.3
    assert scores.std() > 5
    later = torch.arange(40) > at.unsqueeze(1)
    share = scores.masked_fill(later, float("-inf")).softmax(-1)
    assert error(made, share @ cache[:, :32].double()) < 3e-3


def test_positions_are_turned_in_fp32_and_rounded_once() -> None:
    x = draw(6, 64)
    cos, sin = (t[9000:9006] for t in rope.rope_table(9006, 64, 6e6, "cpu"))
    made = rope.rotate(x, cos, sin)
    pairs = torch.view_as_complex(x.double().unflatten(1, (-1, 2)))
    turned = pairs * torch.complex(cos.double(), sin.double())
    expected = torch.view_as_real(turned).flatten(1).to(BF16)
    assert made.dtype == BF16
    assert float((made == expected).float().mean()) > 0.99
