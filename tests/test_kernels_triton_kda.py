"""Staged KDA by Triton against the plain recurrence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

pytest.importorskip("triton", reason="triton is not installed")
torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from bubblescope.targets.ling.reference import kda as reference  # noqa: E402
from optimizations.kernels.project import project  # noqa: E402
from optimizations.kernels.staged_kda import Commit, staged_kda  # noqa: E402
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
    unwritten,
)

BOUND = -3.0
"""Not the published one, so that it is seen to be heeded."""


@dataclass(frozen=True, slots=True)
class Layer:
    """heads, key, value, and tensors as `reference.kda.kda` takes them."""

    qkv: Tensor
    f: Tensor
    b: Tensor
    gate: Tensor
    conv: Tensor
    a_log: Tensor
    dt_bias: Tensor
    norm: Tensor
    state: Tensor
    history: Tensor

    @classmethod
    def drawn(cls, tokens: int, heads: int, key: int, value: int, seed: int = 0) -> Layer:
        draw = Draw(seed)
        channels = heads * (2 * key + value)
        sizes = [channels, heads * key, heads, heads * value]
        projected = draw(tokens, sum(sizes)).split(sizes, 1)
        return cls(
            *projected,
            draw(channels, 4, std=0.5, dtype=FP32),
            draw(heads, 1, std=0.5, dtype=FP32),
            draw(heads, key, std=0.5, dtype=FP32) - 3,
            draw.norm(value),
            draw(heads, value, key, dtype=FP32),
            draw(3, channels),
        )

    def expected(self) -> tuple[Tensor, Tensor, Tensor]:
        """The output before its norm, then what is staged."""
        heads, _value, _ = self.state.shape
        _, states, histories = reference.kda(
            *(getattr(self, n) for n in Layer.__slots__), bound=BOUND
        )
        mixed, _ = reference.short_convolution(self.qkv, self.history, self.conv)
        q, _, _ = reference.heads(mixed, heads, self.state.shape[2])
        out = torch.einsum("thvk,thk->thv", states, q)
        return out.flatten(1), states, histories

    def run(self, staged: int | None = None, **how: int) -> tuple[Tensor, Tensor, Tensor]:
        room = staged or len(self.qkv)
        state = unwritten(room, *self.state.shape, dtype=FP32)
        history = unwritten(room, *self.history.shape)
        out = staged_kda(
            self.qkv,
            self.f,
            self.b,
            self.conv,
            self.a_log,
            self.dt_bias,
            self.state,
            self.history,
            staged_state=state,
            staged_history=history,
            bound=BOUND,
            **how,
        )
        return out, state, history


@pytest.mark.parametrize("tokens", [1, 2, 3, 6, 9])
@pytest.mark.parametrize(("heads", "key", "value"), [(2, 16, 16), (1, 16, 32)])
def test_against_the_recurrence(tokens: int, heads: int, key: int, value: int) -> None:
    _check(Layer.drawn(tokens, heads, key, value))


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="no CUDA device")
@pytest.mark.parametrize("tokens", [1, 6, 9])
def test_against_the_recurrence_on_cuda(tokens: int) -> None:
    layer = Layer.drawn(tokens, 8, 128, 128)
    _check(layer)
    for rows, warps in ((8, 1), (8, 4), (16, 4)):
        _check(layer, rows=rows, warps=warps)


def test_queries_and_keys_at_a_size_at_which_eps_counts() -> None:
    layer = Layer.drawn(3, 2, 16, 16)
    _check(replace(layer, qkv=layer.qkv * 1e-3, history=layer.history * 1e-3))


def _check(layer: Layer, **how: int) -> None:
    kept = layer.state.clone(), layer.history.clone()
    out, states, histories = again(lambda: layer.run(**how))
    for actual, expected in zip((out, states), layer.expected()[:2], strict=True):
        assert error(actual, expected) < EXACT
    assert torch.equal(histories, layer.expected()[2])
    assert torch.equal(layer.state, kept[0])
    assert torch.equal(layer.history, kept[1])


def test_with_the_output_projection_it_is_the_whole_layer() -> None:
    layer = Layer.drawn(6, 2, 16, 16, seed=1)
    weight = Draw(2).linear(40, 32)
    normed, _, _ = reference.kda(*(getattr(layer, n) for n in Layer.__slots__), bound=BOUND)
    out, _, _ = layer.run()
    out = project(out, weight, norm=layer.norm, gate=layer.gate, dtype=FP32)
    assert error(out, normed @ weight.float().t()) < ROUNDED


def test_token_by_token_with_commits_it_is_all_at_once() -> None:
    """Bit for bit: a state that went through memory is the state that did not."""
    layer = Layer.drawn(5, 2, 16, 16, seed=3)
    out, states, histories = layer.run()
    one = {"state": layer.state.clone(), "history": layer.history.clone()}
    for t in range(5):
        rows = {n: getattr(layer, n)[t : t + 1] for n in ("qkv", "f", "b", "gate")}
        alone = Layer(**{n: getattr(layer, n) for n in Layer.__slots__} | rows | one)
        said, state, history = alone.run()
        assert torch.equal(said[0], out[t])
        assert torch.equal(state[0], states[t])
        assert torch.equal(history[0], histories[t])
        one = {"state": state[0], "history": history[0]}


def test_a_token_that_is_rejected_leaves_no_trace() -> None:
    layer = Layer.drawn(6, 2, 16, 16, seed=4)
    _, states, _ = layer.run()
    for n in ("qkv", "f", "b"):
        getattr(layer, n)[3:] = NAN
    _, poisoned, _ = layer.run()
    assert torch.equal(poisoned[:3], states[:3])


def test_room_that_is_not_needed_is_not_written() -> None:
    _, state, history = Layer.drawn(2, 2, 16, 16).run(staged=4)
    assert bool(state[2:].isnan().all())
    assert bool(history[2:].isnan().all())
    assert not bool(state[:2].isnan().any())


@pytest.mark.parametrize("token", [0, 2, 3])
def test_commit_takes_one_token_of_every_layer(token: int) -> None:
    draw = Draw(5)
    shapes = (2, 8, 8), (4, 2, 8, 8), (3, 48), (4, 3, 48)
    types = FP32, FP32, BF16, BF16
    layers = [
        tuple(draw(*s, dtype=t) for s, t in zip(shapes, types, strict=True)) for _ in range(3)
    ]
    staged = [(s.clone(), h.clone()) for _, s, _, h in layers]
    Commit(layers)(torch.tensor([token], device=DEVICE))  # type: ignore[arg-type]
    for (state, staged_state, history, staged_history), (s, h) in zip(layers, staged, strict=True):
        assert torch.equal(state, s[token])
        assert torch.equal(history, h[token])
        assert torch.equal(staged_state, s)
        assert torch.equal(staged_history, h)


def test_what_does_not_fit_is_said() -> None:
    layer = Layer.drawn(3, 2, 16, 16)
    with pytest.raises(ValueError, match="3 tokens, and room to stage 2"):
        layer.run(staged=2)
    with pytest.raises(ValueError, match="values of a head: 16 is no multiple of 5"):
        layer.run(rows=5)
    layer = replace(layer, state=layer.state.transpose(1, 2))
    with pytest.raises(ValueError, match="state: must be contiguous"):
        layer.run()
    room = torch.zeros(4 * 64 + 1, device=DEVICE)
    kept = room[1:65], room[1:].view(4, 64), room[:48], torch.zeros(4, 48, device=DEVICE)
    with pytest.raises(ValueError, match="states must begin at multiples of 16 bytes"):
        Commit([kept])
