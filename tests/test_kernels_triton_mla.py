"""Attention over latents by Triton against plain torch."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="triton is not installed")
torch = pytest.importorskip("torch")

from bubblescope.targets.ling.reference import mla as reference  # noqa: E402
from bubblescope.targets.ling.reference.rope import rope_table  # noqa: E402
from optimizations.kernels.attend import attend  # noqa: E402
from optimizations.kernels.mla import prepare, values  # noqa: E402
from tests.triton_device import (  # noqa: E402
    DEVICE,
    FP32,
    ROUNDED,
    Draw,
    again,
    error,
    padded,
    unwritten,
)

EPS = 0.1
"""So large that another would be seen."""


class Sequence:
    """A layer whose cache holds `first` positions, in shuffled slots, and NaN elsewhere."""

    def __init__(
        self, tokens: int, first: int, context: int, shape: tuple[int, ...], seed: int = 0
    ) -> None:
        self.heads, self.nope, self.rank, self.rope, self.size = shape
        draw = Draw(seed)
        whole = self.rank + self.rope
        self.q = padded(draw(tokens, self.heads * (self.nope + self.rope)))
        self.kv, self.gate = padded(draw(tokens, whole)), padded(draw(tokens, self.heads))
        self.key = draw.linear(self.heads, self.nope, self.rank)
        self.value = draw.linear(self.heads, self.size, self.rank)
        self.norm = draw.norm(self.rank)
        self.cos, self.sin = rope_table(context, self.rope, 6e6, DEVICE)
        self.at = torch.arange(first, first + tokens, device=DEVICE)
        order = torch.randperm(context, generator=torch.Generator().manual_seed(seed))
        self.table = order.to(DEVICE)
        self.cache = unwritten(context, whole)
        self.cache[self.table[:first]] = draw(first, whole)
        self.scale = (self.nope + self.rope) ** -0.5

    def run(self, **how: int) -> torch.Tensor:
        slots = self.table[self.at]
        queries = prepare(
            self.q, self.kv, self.key, self.norm, self.cos, self.sin, self.at, slots, self.cache,
            eps=EPS,
        )  # fmt: skip
        seen = attend(
            queries, self.cache, self.at, self.table, rank=self.rank, scale=self.scale, **how
        )
        return values(seen, self.value, self.gate)

    def expected(self) -> torch.Tensor:
        """In fp32, from a cache in which `run` has not written."""
        cos, sin = self.cos[self.at], self.sin[self.at]
        by_head = self.q.float().unflatten(1, (self.heads, -1))
        q = reference.queries(by_head, self.key.float(), cos, sin)
        new = reference.latents(self.kv.float(), self.norm.float(), cos, sin, EPS)
        keys = self.cache.float()[self.table[: int(self.at[0])]]
        keys = torch.cat([keys, new])
        seen = reference.attention(q, keys, self.at, self.rank, self.scale)
        return reference.values(seen, self.value.float(), self.gate)


SMALL = (2, 32, 32, 16, 32)
RANK = (8, 128, 512, 64, 128)


@pytest.mark.parametrize("tokens", [1, 2, 6, 9])
@pytest.mark.parametrize("first", [0, 1, 31, 90])
def test_against_the_reference(tokens: int, first: int) -> None:
    s = Sequence(tokens, first, 128, SMALL)
    expected = s.expected()
    out = s.run(splits=4, keys=16)
    assert error(out, expected) < 2 * ROUNDED


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="no CUDA device")
@pytest.mark.parametrize("tokens", [1, 6, 9])
@pytest.mark.parametrize("first", [0, 5, 1000, 5000])
def test_against_the_reference_on_cuda(tokens: int, first: int) -> None:
    s = Sequence(tokens, first, 8192, RANK)
    expected = s.expected()
    assert error(again(s.run), expected) < 2 * ROUNDED


def test_the_cache_gets_the_tokens_and_nothing_else() -> None:
    s = Sequence(3, 20, 64, SMALL)
    before = s.cache.clone()
    s.run(splits=4, keys=16)
    new = s.table[s.at]
    cos, sin = s.cos[s.at], s.sin[s.at]
    expected = reference.latents(s.kv.float(), s.norm.float(), cos, sin, EPS)
    assert error(s.cache[new], expected) < ROUNDED
    others = torch.ones(64, dtype=torch.bool, device=DEVICE)
    others[new] = False
    assert torch.equal(s.cache[others].nan_to_num(7), before[others].nan_to_num(7))


def test_what_comes_later_is_not_seen() -> None:
    """A token's output is the same bits whatever the drafts after it were."""
    whole = Sequence(6, 40, 64, SMALL)
    out = whole.run(splits=4, keys=16)
    other = Sequence(6, 40, 64, SMALL)
    other.kv[4:] *= -1000
    spoiled = other.run(splits=4, keys=16)
    assert torch.equal(spoiled[:4], out[:4])
    assert not torch.equal(spoiled[5], out[5])


@pytest.mark.parametrize("splits", [1, 2, 16])
def test_the_split_does_not_matter(splits: int) -> None:
    s = Sequence(2, 50, 64, SMALL)
    expected = s.expected()
    assert error(s.run(splits=splits, keys=16), expected) < 2 * ROUNDED


def test_again_it_gives_the_same_bits() -> None:
    s = Sequence(6, 40, 64, SMALL)
    assert torch.equal(s.run(splits=4, keys=16), s.run(splits=4, keys=16))


def test_values_that_programs_do_not_cover_evenly_are_refused() -> None:
    s = Sequence(2, 20, 64, (2, 32, 32, 16, 24))
    with pytest.raises(ValueError, match="values of a head: 24 is no multiple of 32"):
        s.run(splits=4, keys=16)


def test_very_different_scores() -> None:
    """One position far above all others takes everything, in whatever split it is."""
    s = Sequence(1, 60, 64, SMALL)
    for favourite in (0, 33, 59):
        queries = torch.zeros(2, 1, 48, device=DEVICE, dtype=s.cache.dtype)
        queries[:, :, 0] = 1
        cache = torch.zeros(64, 48, device=DEVICE, dtype=s.cache.dtype)
        cache[:, 1] = torch.arange(64, device=DEVICE)
        cache[s.table[favourite], 0] = 1000.0
        seen = attend(
            queries, cache, s.at, s.table, rank=32, scale=1.0, splits=4, keys=16,
            seen=unwritten(2, 1, 32, dtype=FP32),
        )  # fmt: skip
        assert torch.equal(seen[:, 0], cache[s.table[favourite], :32].float().expand(2, -1))
