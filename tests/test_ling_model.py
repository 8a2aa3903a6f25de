"""The layers of targets/ling against slower and plainer computations of the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from bubblescope.errors import BubblescopeError  # noqa: E402
from bubblescope.targets.ling import accept  # noqa: E402
from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.kda import Kda  # noqa: E402
from bubblescope.targets.ling.loop import Loop  # noqa: E402
from bubblescope.targets.ling.mla import Mla, Positions  # noqa: E402
from bubblescope.targets.ling.model import Model  # noqa: E402
from bubblescope.targets.ling.moe import Moe  # noqa: E402
from bubblescope.targets.ling.reference import kda  # noqa: E402
from bubblescope.targets.ling.reference.moe import swiglu  # noqa: E402
from bubblescope.targets.ling.weights import Weights  # noqa: E402

CONFIG = Config.tiny()
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def weights(seed: int = 1) -> Weights:
    return Weights(seed, "cpu", torch.float32)


def tokens_of(*shape: int, seed: int = 5) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def places(first: int, count: int, shuffled: bool = True) -> Positions:
    order = torch.Generator().manual_seed(9)
    table = torch.randperm(CONFIG.context, generator=order) if shuffled else torch.arange(512)
    at = torch.arange(first, first + count)
    return Positions(at, table[at], table)


def test_the_shapes_are_those_of_the_model() -> None:
    whole, rank = Config(), Config.tp4_rank()
    assert [n for n in range(whole.layers) if whole.is_mla(n)] == [5, 11, 17, 23, 29, 35, 41]
    assert 3 * rank.hidden * rank.expert_width * 2 == 2_949_120  # bytes of an expert, bf16
    assert 4 * rank.heads * rank.head_dim * rank.head_dim == 512 * 1024  # bytes of a KDA state
    assert rank.experts * rank.hidden * 2 == 2_621_440  # bytes of a router in bf16
    assert rank.vocabulary * rank.hidden * 2 == 201_195_520  # bytes of the head
    assert len(whole.swiglu_limit) == len(whole.shared_swiglu_limit) == whole.layers
    for name in ("heads", "dense_width", "expert_width", "shared_width", "vocabulary"):
        assert getattr(whole, name) == 4 * getattr(rank, name)


def test_one_call_for_a_window_is_one_call_a_token() -> None:
    x = tokens_of(CONFIG.window, CONFIG.hidden)
    at_once, one_by_one = Kda(CONFIG, weights()), Kda(CONFIG, weights())
    for layer in (at_once, one_by_one):
        layer.state.copy_(tokens_of(*layer.state.shape, seed=2))
        layer.history.copy_(tokens_of(*layer.history.shape, seed=3))
    before = at_once.state.clone(), at_once.history.clone()
    out = at_once(x)
    assert torch.equal(at_once.state, before[0])  # nothing is taken over before the commit
    assert torch.equal(at_once.history, before[1])
    for t in range(CONFIG.window):
        torch.testing.assert_close(one_by_one(x[t : t + 1])[0], out[t], **CLOSE)
        one_by_one.commit(torch.tensor([0]))
        torch.testing.assert_close(one_by_one.state, at_once.staged_state[t], **CLOSE)
        torch.testing.assert_close(one_by_one.history, at_once.staged_history[t], **CLOSE)


def test_the_delta_rule_as_it_is_written_in_papers() -> None:
    heads, dim = 2, CONFIG.head_dim
    q, k, v, decay = (tokens_of(3, heads, dim, seed=s) for s in range(4))
    decay, beta = torch.sigmoid(decay), torch.sigmoid(tokens_of(3, heads, seed=7))
    before = tokens_of(heads, dim, dim, seed=2)
    out, states = kda.delta_rule(q, k, v, decay.log(), beta, before)
    for h in range(heads):
        state = before[h].t().double()  # (key, value)
        for t in range(3):
            key, b = k[t, h].double().unsqueeze(1), beta[t, h].double()
            state = torch.diag(decay[t, h].double()) @ state
            state = state - b * key @ (key.t() @ state) + b * key @ v[t, h].double().unsqueeze(0)
            expected = (state.t() @ q[t, h].double()).float()
            torch.testing.assert_close(out[t, h], expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(states[t, h].t().double(), state, rtol=1e-4, atol=1e-4)


def test_the_safe_gate_forgets_at_most_by_its_bound() -> None:
    layer = Kda(CONFIG, weights())
    layer.dt_bias.fill_(1e4)  # the gate wide open
    layer.qkv.zero_()
    layer.state.fill_(1.0)
    layer(tokens_of(1, CONFIG.hidden))
    left = torch.full_like(layer.state, 2.718281828**CONFIG.gate_bound)
    torch.testing.assert_close(layer.staged_state[0], left)


def test_latent_attention_is_attention_over_keys_and_values() -> None:
    c, layer = CONFIG, Mla(CONFIG, weights())
    x = tokens_of(7, c.hidden)
    layer(x[:3], places(0, 3))
    out = layer(x[3:], places(3, 4))
    where = places(0, 7)
    latent = layer.cache[where.slots]
    keys = torch.einsum("hnr,tr->htn", layer.key, latent[:, : c.kv_rank])
    values = torch.einsum("hvr,tr->htv", layer.value, latent[:, : c.kv_rank])
    rope = latent[:, c.kv_rank :].expand(c.heads, -1, -1)
    q = (x @ layer.q.t()).view(7, c.heads, -1).transpose(0, 1)
    angle = where.at.unsqueeze(1) * c.rope_theta ** (-torch.arange(0, c.rope_dim, 2) / c.rope_dim)
    pairs = torch.view_as_complex(q[..., c.nope_dim :].reshape(c.heads, 7, -1, 2).contiguous())
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
    q = torch.cat([q[..., : c.nope_dim], turned], -1)
    seen = torch.nn.functional.scaled_dot_product_attention(
        q, torch.cat([keys, rope], -1), values, is_causal=True
    )
    gated = seen.transpose(0, 1) * torch.sigmoid(x @ layer.gate.t()).unsqueeze(-1)
    torch.testing.assert_close(out, (gated.flatten(1) @ layer.out.t())[3:], **CLOSE)


def test_the_router_chooses_groups_first_and_weighs_without_the_bias() -> None:
    c, layer = CONFIG, Moe(CONFIG, 0, 0, weights())
    layer.bias.copy_(tokens_of(c.experts, seed=8))
    x = tokens_of(20, c.hidden)
    chosen, weight = layer.route(x)
    per_group = c.experts // c.expert_groups
    for t in range(20):
        score = torch.sigmoid(x[t] @ layer.router.t()).tolist()
        biased = [s + float(b) for s, b in zip(score, layer.bias, strict=True)]
        groups = [biased[g * per_group : (g + 1) * per_group] for g in range(c.expert_groups)]
        order = sorted(range(c.expert_groups), key=lambda g: -sum(sorted(groups[g])[-2:]))
        best = order[: c.top_groups]
        allowed = [e for e in range(c.experts) if e // per_group in best]
        expected = sorted(allowed, key=lambda e: -biased[e])[: c.top_experts]
        assert chosen[t].tolist() == expected
        total = sum(score[e] for e in expected)
        wanted = torch.tensor([score[e] / total * c.routed_scale for e in expected])
        torch.testing.assert_close(weight[t], wanted)


def test_the_experts_one_by_one() -> None:
    c, layer = CONFIG, Moe(CONFIG, 0.5, 0.25, weights())
    x = tokens_of(4, c.hidden)
    chosen, weight = layer.route(x)
    expected = swiglu(x @ layer.shared.into.t(), 0.25) @ layer.shared.out.t()
    for t in range(4):
        for e, w in zip(chosen[t].tolist(), weight[t], strict=True):
            expected[t] += w * (layer.out[e] @ swiglu(layer.into[e] @ x[t], 0.5))
    torch.testing.assert_close(layer(x), expected, **CLOSE)


def test_the_limit_clamps_the_gate_from_above_and_the_rest_from_both_sides() -> None:
    both = torch.tensor([[9.0, 9.0, -9.0, 9.0, -9.0, 9.0]])  # gate 9 9 -9, up 9 -9 9
    low = float(torch.nn.functional.silu(torch.tensor(-9.0)))
    assert swiglu(both, 4).tolist() == [[16.0, -16.0, pytest.approx(4 * low)]]
    assert swiglu(both, 0)[0, 0].item() == pytest.approx(81, rel=1e-3)


@pytest.mark.parametrize("accepted", range(CONFIG.window))
def test_a_commit_is_a_decode_of_the_accepted_tokens(accepted: int) -> None:
    lead, tokens = torch.tensor([3, 14, 15]), torch.tensor([92, 65, 35, 89])
    verified, plain = Model(CONFIG, weights()), Model(CONFIG, weights())
    for model in (verified, plain):
        for n, token in enumerate(lead):
            model(token.view(1), places(n, 1))
            model.commit(torch.tensor([0]))
    verified(tokens, places(3, CONFIG.window))
    verified.commit(torch.tensor([accepted]))
    for n, token in enumerate(tokens[: accepted + 1]):
        plain(token.view(1), places(3 + n, 1))
        plain.commit(torch.tensor([0]))
    for mine, theirs in zip(verified.kda(), plain.kda(), strict=True):
        torch.testing.assert_close(mine.state, theirs.state, **CLOSE)
        torch.testing.assert_close(mine.history, theirs.history, **CLOSE)
    # What was rejected is in the cache, but nothing reads it.
    token = torch.tensor([77])
    where = places(3 + accepted + 1, 1)
    torch.testing.assert_close(verified(token, where), plain(token, where), **CLOSE)


def test_speculation_gives_what_the_model_says_without_it() -> None:
    """Drafts come from a run without speculation, with seeded errors: verify has to decide."""
    steps, errors = 30, torch.Generator().manual_seed(4)
    plain = Model(CONFIG, weights())
    said = [CONFIG.first_token]
    for n in range(steps * CONFIG.window + CONFIG.window):
        hidden = plain(torch.tensor(said[-1:]), places(n, 1, shuffled=False))
        plain.commit(torch.tensor([0]))
        said.append(int(plain.logits(hidden).argmax()))

    loop = Loop(CONFIG, weights())
    loop.table.copy_(torch.arange(CONFIG.context))
    given, counts = [CONFIG.first_token], set()
    for _ in range(steps):
        loop.plan_and_draft()
        right = torch.tensor(said[len(given) : len(given) + CONFIG.drafts])
        wrong = torch.rand(CONFIG.drafts, generator=errors) < 0.3
        loop.drafts.copy_(torch.where(wrong, (right + 1) % CONFIG.vocabulary, right))
        loop.verify()
        loop.commit()
        loop.extend()
        *tokens, accepted = loop.result.tolist()
        given += tokens[: accepted + 1]
        counts.add(accepted)
        assert int(loop.length) == len(given) - 1
        assert int(loop.token) == given[-1]
    assert given == said[: len(given)]
    assert counts == set(range(CONFIG.window))


def test_the_draft_head_does_in_one_pass_what_it_does_token_by_token() -> None:
    loops = [Loop(CONFIG, weights()) for _ in range(2)]
    tokens = torch.tensor([5, 6, 7, 8])
    hidden = tokens_of(4, CONFIG.hidden)
    at_once = loops[0].mtp(tokens, hidden, places(0, 4))
    for n in range(4):
        one = loops[1].mtp(tokens[n : n + 1], hidden[n : n + 1], places(n, 1))
        torch.testing.assert_close(one[0], at_once[n], **CLOSE)


def test_simulated_acceptance_has_the_mean_asked_for_and_nothing_else() -> None:
    for length in (1.0, 2.5, 3.25, 6.0):
        drawn = accept.schedule(length, 5, 3, "cpu", steps=100_000)
        assert drawn.dtype == torch.int64
        assert drawn.min() >= 0
        assert drawn.max() <= 5
        assert float(drawn.double().mean()) + 1 == pytest.approx(length, abs=0.03)
    assert torch.equal(accept.schedule(2, 3, 7, "cpu"), accept.schedule(2, 3, 7, "cpu"))
    assert not torch.equal(accept.schedule(2, 3, 7, "cpu"), accept.schedule(2, 3, 8, "cpu"))
    with pytest.raises(BubblescopeError, match="with 3 drafts a step gives 1 to 4 tokens"):
        accept.schedule(4.5, 3, 0, "cpu")


def test_the_same_seed_gives_the_same_weights() -> None:
    mine, same, other = (Model(CONFIG, weights(seed)) for seed in (1, 1, 2))
    assert torch.equal(mine.head, same.head)
    assert not torch.equal(mine.head, other.head)
    small = replace(CONFIG, layers=1)
    assert len(Model(small, weights()).layers) == 1
