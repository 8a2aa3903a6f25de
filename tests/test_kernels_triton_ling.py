"""The embedded loop's model with parts on kernels against the plain one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("triton", reason="triton is not installed")
torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from bubblescope.targets.gated import NotOffered  # noqa: E402
from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.loop import Loop  # noqa: E402
from bubblescope.targets.ling.mla import Mla, Positions  # noqa: E402
from bubblescope.targets.ling.model import Model, Mtp  # noqa: E402
from bubblescope.targets.ling.parts import kept  # noqa: E402
from bubblescope.targets.ling.reference.linear import project_fp32  # noqa: E402
from bubblescope.targets.ling.snapshot import routed  # noqa: E402
from bubblescope.targets.ling.target import Ling  # noqa: E402
from bubblescope.targets.ling.weights import Weights  # noqa: E402
from optimizations.kernels.ling import PARTS, fit, replaced  # noqa: E402
from tests.triton_device import DEVICE, error  # noqa: E402

CONFIG = replace(
    Config.tiny(), context=32, vocabulary=64, head_dim=16, expert_width=16, shared_width=16
)
# Limits, a bound and an eps that matter, so that each is seen to reach its kernel.
CONFIG = replace(CONFIG, swiglu_limit=(0.0, 0.0, 0.1), shared_swiglu_limit=(0.0, 0.2, 0.05))
CONFIG = replace(CONFIG, gate_bound=-2.0, eps=0.1)
SUBSETS = [frozenset({part}) for part in sorted(PARTS)]
SUBSETS += [PARTS - {"pdl"}, PARTS]
EXACT = frozenset({"router", "fused KDA verify", "pdl"})
"""Parts that change no weight: in fp32 they may differ only by the order of sums."""


def loop() -> Loop:
    return Loop(CONFIG, Weights(0, DEVICE, torch.float32), None)


def decoded(model: Model, mtp: Mtp) -> list[Tensor]:
    """Two calls, of which the second follows a commit; hidden states, logits and drafts."""
    table = torch.randperm(CONFIG.context, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    first, found = 0, []
    with torch.no_grad():
        for tokens, taken in ((3, 1), (2, 1)):
            at = torch.arange(first, first + tokens, device=DEVICE)
            where = Positions(at, table[at], table)
            said = torch.arange(tokens, device=DEVICE) * 7 + first + 3
            hidden = model(said, where)
            found += [hidden.clone(), model.logits(hidden).clone()]
            model.commit(torch.tensor([taken], device=DEVICE))
            found.append(mtp(said, hidden, where).clone())
            first += taken + 1
    return found


@pytest.fixture(scope="module")
def plain() -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    made = loop()
    found = decoded(made.model, made.mtp)
    return found, kept(made), [m.chosen for m in routed(made) if m.chosen is not None]


@pytest.mark.parametrize("parts", SUBSETS, ids=lambda s: "+".join(sorted(s)))
def test_it_computes_the_same(
    parts: frozenset[str], plain: tuple[list[Tensor], list[Tensor], list[Tensor]]
) -> None:
    made = loop()
    found = decoded(*fit(made, parts, {}))
    tolerance = 1e-4 if parts <= EXACT else 2e-2
    for actual, expected in zip(found, plain[0], strict=True):
        assert error(actual, expected) < tolerance
    for actual, expected in zip(kept(made), plain[1], strict=True):
        if actual.is_floating_point() and bool(expected.any()):
            assert error(actual, expected) < tolerance
    if parts <= EXACT:
        for feed, expected in zip(routed(made), plain[2], strict=True):
            assert feed.chosen is not None
            assert torch.equal(feed.chosen, expected)


def tensors(of: object, seen: set[int]) -> Iterator[Tensor]:
    """All that an object of the loop, or one inside it, holds."""
    if id(of) in seen:
        return
    seen.add(id(of))
    if isinstance(of, Tensor):
        yield of
    elif isinstance(of, list | tuple):
        for each in of:
            yield from tensors(each, seen)
    elif type(of).__module__.startswith("bubblescope.targets.ling"):
        for each in getattr(of, "__dict__", {}).values():
            yield from tensors(each, seen)


def test_graphs_that_were_captured_before_find_every_tensor_where_it_was() -> None:
    """A CUDA graph has addresses only: what is replaced would be read after it was freed."""
    made = loop()
    before = [t.data_ptr() for t in tensors(made, set())]
    assert len(before) > 60
    shared: dict[str, object] = {}
    fit(made, PARTS, shared)
    fit(made, frozenset({"pdl", "router"}), shared)
    assert [t.data_ptr() for t in tensors(made, set())] == before


def test_variants_share_the_weights_that_are_joined() -> None:
    made, shared = loop(), dict[str, Any]()
    fit(made, frozenset({"pdl"}), shared)
    joined = [shared[f"layer {n}"]["joined"] for n in range(CONFIG.layers + 1)]
    fit(made, PARTS, shared)
    assert all(shared[f"layer {n}"]["joined"] is j for n, j in enumerate(joined))


def test_the_plain_model_is_the_same_after_kernels_ran(
    plain: tuple[list[Tensor], list[Tensor], list[Tensor]],
) -> None:
    made = loop()
    fit(made, PARTS, {})
    for actual, expected in zip(decoded(made.model, made.mtp), plain[0], strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("parts", [frozenset({"fused KDA verify"}), EXACT], ids=len)
def test_speculation_on_kernels_gives_what_the_plain_model_says_without_it(
    parts: frozenset[str],
) -> None:
    """Over every accepted length, in a mixed order: tokens, states, and what is cached."""
    order = [2, 0, 3, 1, 3, 0]
    assert set(order) == set(range(CONFIG.window))
    plain, said = loop(), [CONFIG.first_token]
    table = torch.randperm(CONFIG.context, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    states = []
    with torch.no_grad():
        for n in range(sum(order) + len(order) + CONFIG.drafts):
            states.append([t.clone() for a in plain.model.kda() for t in (a.state, a.history)])
            at = torch.tensor([n], device=DEVICE)
            token = torch.tensor(said[-1:], device=DEVICE)
            hidden = plain.model(token, Positions(at, table[at], table))
            plain.model.commit(torch.zeros_like(at))
            said.append(int(plain.model.logits(hidden).argmax()))
        made, given = loop(), [CONFIG.first_token]
        made.table.copy_(table)
        made.model, made.mtp = fit(made, parts, {})
        for right in order:
            made.plan_and_draft()
            drafts = torch.tensor(said[len(given) : len(given) + CONFIG.drafts])
            drafts[right:] = (drafts[right:] + 1) % CONFIG.vocabulary
            made.drafts.copy_(drafts)
            made.verify()
            made.commit()
            made.extend()
            assert int(made.accepted) == right
            given += made.result[: right + 1].tolist()
            kept_now = [t for a in made.model.kda() for t in (a.state, a.history)]
            for mine, theirs in zip(kept_now, states[len(given) - 1], strict=True):
                assert error(mine, theirs) < 1e-4
    assert given == said[: len(given)]
    seen = table[: len(given) - 1]
    for mine, theirs in zip(made.model.layers, plain.model.layers, strict=True):
        if isinstance(mine.attention, Mla) and isinstance(theirs.attention, Mla):
            assert error(mine.attention.cache[seen], theirs.attention.cache[seen]) < 1e-4


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="no CUDA device")
@pytest.mark.parametrize("parts", SUBSETS, ids=lambda s: "+".join(sorted(s)))
def test_the_loop_runs_on_them_and_gives_the_same_tokens_again(parts: frozenset[str]) -> None:
    target = Ling("cuda", config=replace(Config.tiny(), last_token=-1))
    target.start()
    said = []
    try:
        with replaced(target, *parts):
            for _ in range(2):
                target.rewind()
                before = len(target.tokens)
                for _ in range(20):
                    target.step()
                target.finish()
                said.append(target.tokens[before:])
        target.step()
        target.finish()
    finally:
        target.stop()
    assert len(said[0]) >= 20
    assert said[0] == said[1]


def test_the_stream_thread_says_that_it_runs_no_kernels() -> None:
    with (
        pytest.raises(NotOffered, match="runs torch's operations only, no Triton kernels"),
        replaced(Ling("cpu"), "router"),
    ):
        pass


def test_a_part_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no such parts: everything"):
        replaced(Ling("cpu"), "everything")


@pytest.mark.parametrize("parts", [frozenset({"pdl"}), frozenset({"bf16 lm_head"})])
def test_weights_in_bf16_keep_an_fp32_vocabulary_unless_that_part_is_asked_for(
    parts: frozenset[str],
) -> None:
    made = Loop(CONFIG, Weights(0, DEVICE, torch.bfloat16), None)
    model, _ = fit(made, parts, {})
    hidden = torch.ones(2, CONFIG.hidden, device=DEVICE, dtype=torch.bfloat16)
    used: list[torch.dtype] = []

    def note(x: Tensor, weight: Tensor) -> Tensor:
        used.append(weight.dtype)
        return project_fp32(x, weight)

    with (
        mock.patch("bubblescope.targets.ling.model.project_fp32", note),
        mock.patch("optimizations.kernels.ling.project_fp32", note),
    ):
        assert model.logits(hidden).dtype == torch.float32
    assert used == [torch.bfloat16 if "bf16 lm_head" in parts else torch.float32]
