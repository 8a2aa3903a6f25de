"""The verify attention by Triton against plain torch."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="triton is not installed")
torch = pytest.importorskip("torch")

from optimizations.kernels.verify_attention import fits, verify  # noqa: E402
from tests.triton_device import DEVICE, Draw  # noqa: E402


def expected(q, latents, cache, slots, rank, scale):  # type: ignore[no-untyped-def]
    """Softmax over all keys at once, in fp64; a draft sees the context and those up to itself."""
    keys = torch.cat([cache[slots, 0], latents[:, 0]]).double()
    score = torch.einsum("thd,kd->htk", q.double(), keys) * scale
    draft = torch.arange(len(keys), device=DEVICE) - len(slots)
    hidden = draft[None, :] > torch.arange(len(q), device=DEVICE)[:, None]
    weight = score.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("htk,kd->thd", weight, keys[:, :rank])


@pytest.mark.parametrize(
    ("tokens", "heads", "rank", "rope", "length"),
    [
        (6, 8, 512, 64, 700),  # a rank of Ling
        (6, 8, 64, 16, 1),
        (6, 8, 64, 16, 31),
        (1, 3, 64, 16, 33),
        (8, 5, 64, 32, 1500),
        (3, 8, 128, 16, 992),  # a whole block a split
    ],
)
def test_every_draft_sees_the_context_and_the_drafts_before_it(
    tokens: int, heads: int, rank: int, rope: int, length: int
) -> None:
    draw = Draw(length)
    whole = rank + rope
    q, latents = draw(tokens, heads, whole), draw(tokens, 1, whole)
    cache = draw(2 * length + 5, 1, whole)
    order = torch.randperm(len(cache), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    slots = order[:length]
    unused = torch.ones(len(cache), dtype=torch.bool, device=DEVICE)
    unused[slots] = False
    cache[unused] = float("nan")  # nobody may read another sequence's entries
    table = torch.cat([order[length : length + 3], slots, order[length : length + 2]]).int()
    context = torch.tensor([3, 3 + length], dtype=torch.int32, device=DEVICE)
    assert fits(q, latents, cache, rank, context)
    scale = whole**-0.5
    made = verify(q, latents, cache, context, table, rank=rank, scale=scale)
    wanted = expected(q, latents, cache, slots, rank, scale)
    apart = float((made.double() - wanted).abs().max() / wanted.abs().max())
    assert apart < (2**-7 if made.dtype == torch.bfloat16 else 1e-5)
    again = verify(q, latents, cache, context, table, rank=rank, scale=scale)
    assert torch.equal(made, again)


def test_what_it_cannot_take_is_left_alone() -> None:
    q, latents, cache = (torch.zeros(n, h, 576, device=DEVICE) for n, h in ((6, 8), (6, 1), (9, 1)))
    one = torch.tensor([0, 4], dtype=torch.int32, device=DEVICE)
    assert fits(q, latents, cache, 512, one)
    assert not fits(q, latents, cache, 512, torch.tensor([0, 2, 4], device=DEVICE))
    assert not fits(torch.zeros(9, 8, 576), torch.zeros(9, 1, 576), cache, 512, one)
    assert not fits(q, latents[:2], cache, 512, one)
    assert not fits(q, torch.zeros(6, 2, 576), torch.zeros(9, 2, 576), 512, one)
