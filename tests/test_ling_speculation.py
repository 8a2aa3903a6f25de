"""Speculation, and passes over many tokens, against one token after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

torch = pytest.importorskip("torch")

from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.loop import Loop  # noqa: E402
from bubblescope.targets.ling.mla import Mla, Positions  # noqa: E402
from bubblescope.targets.ling.model import Model  # noqa: E402
from bubblescope.targets.ling.weights import Weights  # noqa: E402

CONFIG = replace(Config.tiny(), drafts=5, layers=6)
CONFIG = replace(CONFIG, swiglu_limit=(0.0,) * 4 + (0.5,) * 2)
CONFIG = replace(CONFIG, shared_swiglu_limit=(0.0,) * 3 + (0.5,) * 3)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
TABLE = torch.randperm(CONFIG.context, generator=torch.Generator().manual_seed(9))


@pytest.fixture(autouse=True)
def _plainly() -> Iterator[None]:
    """Without gradients; on one thread, since the tensors are too small for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


def weights() -> Weights:
    return Weights(1, "cpu", torch.float32)


def places(first: int, count: int) -> Positions:
    at = torch.arange(first, first + count)
    return Positions(at, TABLE[at], TABLE)


@dataclass
class Kept:
    """What a model keeps of a sequence: states, convolution inputs, latents by position."""

    states: list[torch.Tensor]
    histories: list[torch.Tensor]
    latents: list[torch.Tensor]

    @classmethod
    def of(cls, model: Model, length: int) -> Kept:
        mla = [x.attention for x in model.layers if isinstance(x.attention, Mla)]
        return cls(
            [x.state.clone() for x in model.kda()],
            [x.history.clone() for x in model.kda()],
            [x.cache[TABLE[:length]].clone() for x in mla],
        )

    def assert_close(self, other: Kept) -> None:
        for name in ("states", "histories", "latents"):
            for mine, theirs in zip(getattr(self, name), getattr(other, name), strict=True):
                torch.testing.assert_close(mine, theirs, **CLOSE)


def greedy(count: int) -> tuple[list[int], list[Kept]]:
    """Tokens without speculation, and what is kept after each but the last."""
    model, said, kept = Model(CONFIG, weights()), [CONFIG.first_token], []
    kept.append(Kept.of(model, 0))
    for n in range(count):
        hidden = model(torch.tensor(said[-1:]), places(n, 1))
        model.commit(torch.tensor([0]))
        kept.append(Kept.of(model, n + 1))
        said.append(int(model.logits(hidden).argmax()))
    return said, kept


@pytest.mark.parametrize("prefill", [1, 7, 19, 24])
def test_a_prefill_and_a_decode_are_one_pass(prefill: int) -> None:
    count = 24
    config = replace(CONFIG, drafts=count - 1)  # so that a call may have as many tokens
    draw = torch.Generator().manual_seed(3)
    tokens = torch.randint(config.vocabulary, (count,), generator=draw)
    whole, split = Model(config, weights()), Model(config, weights())
    expected = whole(tokens, places(0, count))
    whole.commit(torch.tensor([count - 1]))
    made = [split(tokens[:prefill], places(0, prefill))]
    split.commit(torch.tensor([prefill - 1]))
    for n in range(prefill, count):
        made.append(split(tokens[n : n + 1], places(n, 1)))
        split.commit(torch.tensor([0]))
    torch.testing.assert_close(torch.cat(made), expected, **CLOSE)
    torch.testing.assert_close(split.logits(torch.cat(made)), whole.logits(expected), **CLOSE)
    Kept.of(split, count).assert_close(Kept.of(whole, count))


def test_tokens_states_and_caches_are_those_without_speculation() -> None:
    """Drafts of an oracle with one error, planted behind 0 to 5 right ones in a random order."""
    steps = 30
    said, kept = greedy(steps * CONFIG.window)
    order = torch.randperm(steps, generator=torch.Generator().manual_seed(4)) % CONFIG.window
    loop = Loop(CONFIG, weights())
    loop.table.copy_(TABLE)
    given, counts = [CONFIG.first_token], []
    for right in order.tolist():
        loop.plan_and_draft()
        drafts = torch.tensor(said[len(given) : len(given) + CONFIG.drafts])
        if right < CONFIG.drafts:
            drafts[right] = (drafts[right] + 1) % CONFIG.vocabulary
        loop.drafts.copy_(drafts)
        loop.verify()
        loop.commit()
        loop.extend()
        *tokens, accepted = loop.result.tolist()
        given += tokens[: accepted + 1]
        counts.append(accepted)
        length = int(loop.length)
        assert length == len(given) - 1
        assert int(loop.token) == given[-1]
        Kept.of(loop.model, length).assert_close(kept[length])
    assert given == said[: len(given)]
    assert counts == order.tolist()
    assert set(counts) == set(range(CONFIG.window))  # every number of accepted drafts


def test_drafts_are_those_of_a_draft_head_that_saw_every_token_once() -> None:
    """After mixed accepted lengths: its cache holds the model's hidden states, none of a draft."""
    steps = 12
    said, _ = greedy(steps * CONFIG.window)
    loop, plain = Loop(CONFIG, weights()), Loop(CONFIG, weights())
    loop.table.copy_(TABLE)
    length = 0
    for right in [2, 0, 5, 1, 4, 3, 0, 5, 2, 2, 1, 4]:
        loop.plan_and_draft()
        drafts = torch.tensor(said[length + 1 : length + 1 + CONFIG.drafts])
        if right < CONFIG.drafts:
            drafts[right] = (drafts[right] + 1) % CONFIG.vocabulary
        loop.drafts.copy_(drafts)
        loop.verify()
        loop.commit()
        loop.extend()
        length = int(loop.length)
    loop.plan_and_draft()

    for n in range(length):
        hidden = plain.model(torch.tensor(said[n : n + 1]), places(n, 1))
        plain.model.commit(torch.tensor([0]))
        drafted = plain.mtp(torch.tensor(said[n + 1 : n + 2]), hidden, places(n, 1))
    tokens = [plain.mtp.next_token(drafted)]
    for n in range(1, CONFIG.drafts):
        drafted = plain.mtp(tokens[-1], drafted, places(length + n - 1, 1))
        tokens.append(plain.mtp.next_token(drafted))
    assert loop.drafts.tolist() == torch.cat(tokens).tolist()
    # The choice hardly depends on the position that a draft was made at, but its latent does.
    seen = TABLE[: length + CONFIG.drafts - 1]
    caches = [x.mtp.layer.attention.cache[seen] for x in (loop, plain)]
    torch.testing.assert_close(*caches, **CLOSE)
