"""Router and experts by Triton against plain torch."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="triton is not installed")
torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from bubblescope.targets.ling.reference import moe, norms  # noqa: E402
from optimizations.kernels.experts import experts  # noqa: E402
from optimizations.kernels.router import choose, gate  # noqa: E402
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

EPS = 0.1
"""So large that another would be seen."""
gpu = pytest.mark.skipif(DEVICE != "cuda", reason="no CUDA device")


@pytest.mark.parametrize("tokens", [1, 6, 9])
@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize(("count", "width"), [(16, 64), (10, 512)])
def test_gate(tokens: int, dtype: torch.dtype, count: int, width: int) -> None:
    _check_gate(tokens, dtype, count, width)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("tokens", [1, 6, 9])
@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_gate_on_cuda(tokens: int, dtype: torch.dtype) -> None:
    _check_gate(tokens, dtype, 512, 2560)


def _check_gate(tokens: int, dtype: torch.dtype, count: int, width: int) -> None:
    draw = Draw(tokens)
    x, weight, norm = padded(draw(tokens, width)), draw.linear(count, width, dtype=dtype), None
    logits, same = gate(x, weight, logits=unwritten(tokens, count, dtype=FP32))
    assert same is x
    assert error(logits, x.float() @ weight.float().t()) < EXACT
    norm = draw.norm(width)
    logits, normed = again(
        lambda: gate(x, weight, norm=norm, eps=EPS, normed=unwritten(tokens, width))
    )
    assert error(normed, norms.rms_norm(x, norm, EPS)) < ROUNDED
    assert error(logits, normed.float() @ weight.float().t()) < EXACT


@pytest.mark.parametrize("tokens", [1, 6, 9])
@pytest.mark.parametrize(
    ("count", "groups", "kept", "top"), [(16, 4, 2, 2), (64, 8, 4, 8), (512, 8, 4, 8)]
)
@pytest.mark.parametrize("lower", [0.0, 3.0])
def test_choice(tokens: int, count: int, groups: int, kept: int, top: int, lower: float) -> None:
    """With all scores below 0 too, so that what is left out may not count as 0."""
    draw = Draw(tokens)
    logits, bias = draw(tokens, count, dtype=FP32), draw(count, std=0.1, dtype=FP32) - lower
    expected = moe.route(logits, bias, groups, kept, top, 2.5)
    chosen, weight = choose(
        logits, bias, groups=groups, top_groups=kept, top=top, scale=2.5,
        weight=unwritten(tokens, top, dtype=FP32),
    )  # fmt: skip
    assert torch.equal(chosen, expected[0])
    assert error(weight, expected[1]) < EXACT


def test_the_bias_chooses_but_does_not_weigh() -> None:
    logits = torch.zeros(1, 16, device=DEVICE)
    bias = torch.zeros(16, device=DEVICE)
    bias[[5, 6]] = torch.tensor([3.0, 2.0], device=DEVICE)
    chosen, weight = choose(logits, bias, groups=4, top_groups=1, top=2, scale=2.5)
    assert chosen.tolist() == [[5, 6]]
    assert weight.tolist() == [[1.25, 1.25]]


def test_groups_outside_give_nothing() -> None:
    """The single best expert is alone in its group, and two pairs are better."""
    logits = torch.full((1, 16), -8.0, device=DEVICE)
    logits[0, 0] = 2.0
    logits[0, [4, 5, 8, 9]] = torch.tensor([1.0, 0.9, 0.8, 0.7], device=DEVICE)
    bias = torch.zeros(16, device=DEVICE)
    chosen, _ = choose(logits, bias, groups=4, top_groups=2, top=4, scale=1.0)
    assert chosen.tolist() == [[4, 5, 8, 9]]


def test_ties_go_to_the_lower_number() -> None:
    logits, bias = torch.zeros(2, 16, device=DEVICE), torch.zeros(16, device=DEVICE)
    chosen, weight = choose(logits, bias, groups=4, top_groups=2, top=2, scale=2.0)
    assert chosen.tolist() == [[0, 1], [0, 1]]
    assert weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]


class Bank:
    """Random experts, of which only those chosen are numbers."""

    def __init__(self, count: int, width: int, size: int, chosen: Tensor, seed: int = 0) -> None:
        draw = Draw(seed)
        self.chosen = chosen.to(DEVICE)
        tokens, top = chosen.shape
        self.x = padded(draw(tokens, width))
        self.into, self.out = draw.linear(count, 2 * size, width), draw.linear(count, width, size)
        self.shared_into, self.shared_out = draw.linear(2 * size, width), draw.linear(width, size)
        self.weight = draw(tokens, top, dtype=FP32).abs()
        idle = torch.ones(count, dtype=torch.bool, device=DEVICE)
        idle[self.chosen.flatten()] = False
        self.into[idle] = NAN
        self.out[idle] = NAN

    def run(self, **how: object) -> Tensor:
        return experts(
            self.x, self.into, self.out, self.shared_into, self.shared_out,
            self.chosen, self.weight, **how,  # type: ignore[arg-type]
        )  # fmt: skip

    def expected(self, limit: float, shared_limit: float) -> Tensor:
        x = self.x.float()
        used, place = self.chosen.unique(return_inverse=True)
        into, out = self.into[used].float(), self.out[used].float()
        routed = moe.experts(x, into, out, place, self.weight, limit)
        shared = self.shared_into.float(), self.shared_out.float()
        return routed + moe.dense(x, *shared, shared_limit)


DISTINCT = torch.arange(12).view(3, 4)
SAME = torch.tensor([[7, 2, 0, 5]]).repeat(6, 1)
MIXED = torch.tensor([[7, 2, 0, 5], [1, 7, 9, 2], [11, 3, 4, 6], [2, 12, 7, 1]])


CHOICES = {"distinct": DISTINCT, "same": SAME, "mixed": MIXED, "one": MIXED[:1]}


@pytest.mark.parametrize("chosen", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("limits", [(0.0, 0.0), (0.5, 0.0), (0.1, 0.2)])
def test_experts(chosen: Tensor, limits: tuple[float, float]) -> None:
    bank = Bank(16, 64, 16, chosen)
    out = bank.run(
        limit=limits[0], shared_limit=limits[1], out=unwritten(*bank.x.shape, dtype=FP32)
    )
    assert error(out, bank.expected(*limits)) < ROUNDED


@pytest.mark.parametrize(("width", "size"), [(192, 16), (512, 16), (64, 96)])
def test_experts_of_other_widths(width: int, size: int) -> None:
    bank = Bank(16, width, size, MIXED[1:3])
    assert error(bank.run(), bank.expected(0, 0)) < ROUNDED


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("tokens", [1, 6, 9])
def test_experts_on_cuda(tokens: int) -> None:
    chosen = torch.stack([torch.randperm(512)[:8] for _ in range(tokens)])
    chosen[-1] = chosen[0]
    bank = Bank(512, 2560, 192, chosen)
    out = again(lambda: bank.run(limit=4.0, shared_limit=7.0, out=unwritten(tokens, 2560)))
    assert error(out, bank.expected(4.0, 7.0)) < ROUNDED


def test_the_residual_is_added_in_place() -> None:
    bank = Bank(16, 64, 16, MIXED)
    residual = padded(Draw(1)(4, 64))
    out = residual.clone()
    bank.run(residual=out, out=out)
    assert error(out, bank.expected(0, 0) + residual.float()) < ROUNDED


def test_tokens_that_share_experts_get_what_they_get_alone() -> None:
    bank = Bank(16, 64, 16, MIXED)
    together = bank.run()
    for t in range(len(MIXED)):
        alone = experts(
            bank.x[t : t + 1], bank.into, bank.out, bank.shared_into, bank.shared_out,
            bank.chosen[t : t + 1], bank.weight[t : t + 1], out_rows=16,
        )  # fmt: skip
        assert torch.equal(alone[0], together[t])


def test_a_token_of_nan_spoils_only_itself() -> None:
    bank = Bank(16, 64, 16, MIXED)
    whole = bank.run()
    bank.x[1] = NAN
    spoiled = bank.run()
    assert bool(spoiled[1].isnan().all())
    assert torch.equal(spoiled[[0, 2, 3]], whole[[0, 2, 3]])


def test_again_it_gives_the_same_bits() -> None:
    bank = Bank(16, 64, 16, SAME)
    assert torch.equal(bank.run(), bank.run())


def test_what_programs_do_not_cover_evenly_is_refused() -> None:
    """Rather than left unwritten."""
    with pytest.raises(ValueError, match="width of an expert: 18 is no multiple of 4"):
        Bank(16, 64, 18, MIXED).run()
    with pytest.raises(ValueError, match="width: 72 is no multiple of 16"):
        Bank(16, 72, 16, MIXED).run()
    bank = Bank(16, 64, 16, MIXED)
    bank.chosen = bank.chosen.t().contiguous().t()
    with pytest.raises(ValueError, match="chosen: must be contiguous"):
        bank.run()


def test_a_shared_expert_of_another_width_is_refused() -> None:
    bank = Bank(16, 64, 16, MIXED)
    bank.shared_out = bank.shared_out[:, :8]
    with pytest.raises(ValueError, match="as wide as the others"):
        bank.run()
