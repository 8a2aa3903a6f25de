"""The gates on the embedded loop: what is right passes, what is made wrong on purpose does not."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

from bubblescope.ablate.gates import GateResult, Gates, check  # noqa: E402
from bubblescope.errors import BubblescopeError  # noqa: E402
from bubblescope.targets.gated import Drafts, NotOffered, Stress  # noqa: E402
from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.parts import Parts  # noqa: E402
from bubblescope.targets.ling.target import Ling  # noqa: E402
from optimizations import registry  # noqa: E402
from optimizations.passes import PassEntry  # noqa: E402
from tests import gate_passes as wrong  # noqa: E402
from tests.ling_variants import Fits  # noqa: E402

GATES = ("tokens", "state", "restricted SMs", "delayed producer")
ROUNDING = ("flips", *GATES[1:])
SHORT = {"tokens": 48, "delay_ns": 200_000_000}


def target() -> Ling:
    return Ling("cpu", config=Config.tiny())


@pytest.fixture(scope="module")
def gates() -> Gates:
    """Runs without passes are shared by all tests that use it."""
    return Gates(target, tokens=64, delay_ns=20_000_000)


@pytest.fixture(autouse=True)
def _injected(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        wrong.Injected(),
        wrong.DropsAToken("drops-a-token"),
        wrong.KeepsARejectedToken("keeps-a-rejected-token"),
        wrong.WaitsNotLongEnough("waits-not-long-enough"),
        wrong.AcceptsLess("accepts-less"),
        wrong.Breaks("breaks"),
        wrong.RoundsTheHead("rounds-the-head"),
        wrong.RoutesElsewhere("routes-elsewhere"),
    ]
    monkeypatch.setattr(registry, "PASSES", [*registry.PASSES, *entries])


def verdicts(results: tuple[GateResult, ...]) -> dict[str, str]:
    return {r.gate: str(r.verdict) for r in results}


def only(results: tuple[GateResult, ...], gate: str) -> GateResult:
    (found,) = [r for r in results if r.gate == gate]
    return found


def test_seq_len_sync_passes_all_that_can_be_run_here() -> None:
    shown: list[tuple[str, float]] = []
    results = check(
        target, ["seq-len-sync"], delay_ns=20_000_000, progress=lambda *said: shown.append(said)
    )
    assert verdicts(results) == dict(
        zip(GATES, ("passed", "passed", "not tested", "passed"), strict=True)
    )
    tokens, state, restricted, delayed = results
    assert tokens.numbers["tokens"] == 256
    assert tokens.numbers["median_margin"] > 1000 * tokens.numbers["rounding"]
    assert tokens.detail.startswith(
        "256 greedy tokens equal with the passes on and off and without"
    )
    # 256 tokens at 1 to 4 a step, 2.5 in the mean: 26 shuffled blocks of four steps give 260.
    assert [state.numbers[f"steps_accepting_{n}"] for n in range(4)] == [26, 26, 26, 26]
    assert 0 < state.numbers["apart"] < 1e-5
    assert restricted.detail == "the CPU stream thread is one thread, it has no SMs"
    assert delayed.detail == (
        "260 tokens, drafts accepted and state equal with stages delayed by 20 ms"
    )
    assert shown[0] == ("without speculation", 0.0)
    assert all(0 <= share < 1 for _, share in shown)
    assert "seq-len-sync: drafts replayed" in [stage for stage, _ in shown]


def test_a_pass_that_does_nothing_passes(gates: Gates) -> None:
    assert set(verdicts(gates.check(["injected", "seq-len-sync"])).values()) == {
        "passed",
        "not tested",
    }
    assert verdicts(gates.check([])) == verdicts(gates.check(["injected"]))


def test_a_dropped_token_is_named_by_its_position(gates: Gates) -> None:
    said = only(gates.check(["drops-a-token"]), "tokens")
    known = target().gated().plain(42).tokens
    assert said.verdict == "failed"
    assert said.numbers["first_difference"] == 40
    assert said.detail == (f"token 40 (from 0) is {known[41]}, with the passes off {known[40]}")


def test_a_state_that_keeps_a_trace_of_a_rejected_token_fails(gates: Gates) -> None:
    """So faint a one that no token shows it."""
    results = gates.check(["keeps-a-rejected-token"])
    assert verdicts(results)["tokens"] == "passed"
    state = only(results, "state")
    assert state.verdict == "failed"
    assert state.detail.startswith("layer 0 KDA state: ")
    assert "with the passes off" in state.detail
    assert verdicts(results)["delayed producer"] == "failed"  # the same comparison again


def test_a_race_shows_only_where_the_producer_is_delayed() -> None:
    results = check(target, ["waits-not-long-enough"], **SHORT)
    assert verdicts(results) == dict(
        zip(GATES, ("passed", "passed", "not tested", "failed"), strict=True)
    )
    assert only(results, "delayed producer").detail.startswith("with stages delayed by 200 ms: ")


def test_fewer_accepted_drafts_fail_although_the_tokens_are_right(gates: Gates) -> None:
    said = only(gates.check(["accepts-less"]), "tokens")
    assert said.verdict == "failed"
    assert said.detail.startswith("equal tokens, but step ")


def test_an_error_with_the_pass_on_fails_every_gate_that_could_run(gates: Gates) -> None:
    results = gates.check(["breaks"])
    assert verdicts(results) == dict(
        zip(GATES, ("failed", "failed", "not tested", "failed"), strict=True)
    )
    assert results[0].detail == (
        "the run with the passes on ended in an error: ValueError: no such kernel"
    )


def test_a_pass_that_rounds_is_counted(gates: Gates) -> None:
    results = gates.check(["rounds-the-head"])
    assert tuple(verdicts(results)) == ROUNDING
    flips, state = results[:2]
    assert flips.verdict == state.verdict == "passed"
    given = int(flips.numbers["tokens"])
    assert 64 <= given < 64 + 2 * 4
    assert flips.numbers["argmax_flips_off"] == 0  # the target itself computes in fp32 here
    assert flips.numbers["expert_flips_off"] == flips.numbers["expert_flips"] == 0
    assert flips.numbers["expert_choices"] == given * 2 * 2  # MoE layers, experts a token
    # Counted by hand: along the same tokens, argmax of logits rounded to bf16.
    plain = target().gated().plain(given)
    rounded = torch.from_numpy(plain.logits).bfloat16().float().argmax(-1).numpy()
    assert flips.numbers["argmax_flips"] == int((rounded != plain.tokens).sum())


def test_a_pass_that_claims_to_round_and_is_wrong_fails(gates: Gates) -> None:
    flips = only(gates.check(["routes-elsewhere"]), "flips")
    assert flips.verdict == "failed"
    assert "which no rounding of" in flips.detail


def test_passes_of_which_one_rounds_are_gated_as_rounding(gates: Gates) -> None:
    assert tuple(verdicts(gates.check(["seq-len-sync", "rounds-the-head"]))) == ROUNDING


def test_passes_that_there_are_not(gates: Gates, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BubblescopeError, match="no pass 'none'"):
        gates.check(["none"])
    other = PassEntry("other", "", (), ("sglang",))
    monkeypatch.setattr(registry, "PASSES", [other])
    with pytest.raises(BubblescopeError, match="pass other: not made for target ling"):
        gates.check(["other"])


def drafts_of(known: Any, right: tuple[int, ...], **more: Any) -> Drafts:
    return Drafts(tuple(known.tolist()), right, **more)


def test_the_model_accepts_just_the_drafts_before_the_first_wrong_one() -> None:
    gated = target().gated()
    known = gated.plain(60).tokens
    right = (0, 3, 1, 2, 2, 0, 3)
    run = gated.replay(drafts_of(known, right), 40)
    steps = len(run.accepted)
    assert run.accepted.tolist() == [right[n % 7] for n in range(steps)]
    assert run.tokens.tolist() == known[: len(run.tokens)].tolist()
    assert int(run.state["length"][0]) == len(run.tokens) == sum(run.accepted) + steps
    assert run.state["layer 2 MLA cache"].shape == (len(run.tokens), 48)


def test_wrong_drafts_are_wrong_and_change_nothing_that_is_kept() -> None:
    """Two replays with other wrong tokens end in the same bits."""
    gated = target().gated()
    known = gated.plain(60).tokens
    runs = [gated.replay(drafts_of(known, (0, 1, 2, 3), seed=seed), 40) for seed in (1, 2)]
    kept = [n for n in runs[0].state if "draft" not in n]
    assert all(np.array_equal(runs[0].state[n], runs[1].state[n]) for n in kept)


def test_drafts_that_the_model_would_not_give_are_not_accepted() -> None:
    gated = target().gated()
    known = (gated.plain(60).tokens + 1) % gated.config.vocabulary  # type: ignore[attr-defined]
    run = gated.replay(drafts_of(known, (3,)), 20)
    assert run.accepted.tolist() == [0] * 20
    assert run.tokens.tolist()[:20] == gated.plain(20).tokens.tolist()


def test_forced_replays_go_on_from_the_sequence_whatever_the_model_says() -> None:
    gated = target().gated()
    other = np.arange(100, 160)
    run = gated.replay(drafts_of(other, (3,), forced=True), 20)
    along = gated.plain(20, along=other[:20].tolist())
    assert run.accepted.tolist() == [0] * 20  # the model hardly ever says what is in `other`
    assert run.tokens[:20].tolist() == along.tokens.tolist()
    assert np.array_equal(run.experts[:20], along.experts)  # type: ignore[index]


def test_experts_are_those_of_the_step_that_kept_the_position() -> None:
    gated = target().gated()
    known = gated.plain(60)
    run = gated.replay(drafts_of(known.tokens, (0, 2, 1, 3)), 40)
    assert run.experts is not None
    assert known.experts is not None
    assert run.experts.shape == (len(run.tokens), 2, 2)
    assert np.array_equal(run.experts, known.experts[: len(run.tokens)])


def test_without_speculation_it_is_a_loop_over_the_model() -> None:
    from bubblescope.targets.ling.loop import Loop
    from bubblescope.targets.ling.mla import Positions
    from bubblescope.targets.ling.weights import Weights

    config = Config.tiny()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    loop = Loop(config, Weights(0, "cpu", torch.float32, branch=0.25))  # next to 1 / 3 layers
    places, token, expected = torch.arange(config.context), torch.tensor([1]), []
    with torch.no_grad():
        for n in range(12):
            hidden = loop.model(token, Positions(places[n : n + 1], places[n : n + 1], places))
            loop.model.commit(torch.tensor([0]))
            token = loop.model.logits(hidden).argmax(-1)
            expected.append(int(token))
    torch.set_num_threads(threads)
    run = target().gated().plain(12)
    assert run.tokens.tolist() == expected
    assert run.logits.shape == (12, 512)
    assert np.array_equal(run.state["layer 0 KDA state"], loop.model.kda()[0].state.numpy())
    again = target().gated().plain(14, along=[*expected, 5, 6], state_after=12)
    assert all(np.array_equal(again.state[n], run.state[n]) for n in run.state)


def test_a_run_without_speculation_has_parts_replaced_too() -> None:
    gated = target().gated()
    gated.parts = Parts()
    expected = gated.plain(12)
    with gated.parts.replaced(frozenset({"head"}), Fits(shifted=True)):
        shifted = gated.plain(12, along=expected.tokens.tolist())
    assert shifted.tokens.tolist() == ((expected.tokens + 1) % 512).tolist()


def test_delays_hold_up_the_stream_for_as_long_as_asked() -> None:
    import time

    from bubblescope.targets.ling.stream_thread import StreamThread
    from bubblescope.targets.ling.stress import Delays

    device = StreamThread()
    try:
        delays = Delays(device, 30_000_000, seed=0)
        delayed = []
        for _ in range(40):
            begin = time.monotonic_ns()
            delays.before()
            queued = time.monotonic_ns()
            device.synchronize()
            delayed.append(time.monotonic_ns() - begin > 15_000_000)
            assert queued - begin < 15_000_000 or not delayed[-1]
    finally:
        device.close()
    assert 1 <= sum(delayed) <= 15  # one in eight of forty: 5


def test_the_loop_itself_is_left_alone() -> None:
    gated = target().gated()
    gated.replay(drafts_of(gated.plain(30).tokens, (1,)), 10)
    plain, again = target(), target()
    for made in (plain, again):
        made.start()
        scheduler = made._scheduler
        assert scheduler is not None
        assert scheduler.before_stage is None
        for _ in range(20):
            made.step()
        made.stop()
    assert plain.tokens == again.tokens
    assert "simulated acceptance" in plain.about()["acceptance"]
    assert gated.about()["acceptance"] == "the model's own, greedy"


def test_what_cannot_be_run_says_so() -> None:
    gated = target().gated()
    known = gated.plain(10).tokens
    with pytest.raises(NotOffered, match="has no SMs"):
        gated.replay(drafts_of(known, (1,)), 10, Stress(sms=8))
    with pytest.raises(BubblescopeError, match="requests end too early to check 473 tokens"):
        gated.replay(drafts_of(known, (1,)), 473)
    with pytest.raises(BubblescopeError, match="caches hold 512 positions, not 513"):
        gated.plain(513)
