"""What the gates say of runs that are made up: each rule, on a target of a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubblescope.ablate.gates import GateResult, check, compare
from bubblescope.ablate.gates.runs import Runs
from bubblescope.targets.gated import Drafts, Gateable, NotOffered, PlainRun, ReplayRun, Stress
from optimizations import registry
from optimizations.passes import PassEntry

TOKENS = 12
CACHE = "layer 0 cache"
Change = Callable[[ReplayRun, Stress | None], ReplayRun]


@dataclass
class Toy:
    """Position p is followed by token p + 5, by a margin; its cache entry is p + 1.

    margin: of the logits. moved: what logits do where several positions are run at once. gap: how
    far the state of a replay is off. off_fp32: how far all logits are off those in fp32. tie: a
    position where fp32 says token 60, by 0.01. first_entry: factor of the first cache entry without
    speculation. changes: what passes that are on do to a replay.
    """

    margin: float = 0.5
    moved: float = 0.0
    gap: float = 0.0
    first_entry: float = 1.0
    drafts: int = 2
    roundoff: float = 2.0**-24
    off_fp32: float = 0.0
    tie: int | None = None
    no_sms: bool = False
    along_the_reference: bool = False
    name: str = "toy"
    changes: list[Change] = field(default_factory=list)
    seen: list[Drafts] = field(default_factory=list)

    def gated(self) -> Toy:
        return self

    def plain(
        self,
        count: int,
        *,
        along: Sequence[int] | None = None,
        rows: int = 1,
        state_after: int | None = None,
        fp32: bool = False,
    ) -> PlainRun:
        tokens = np.arange(count) + 5
        logits = np.zeros((count, 64), np.float32)
        logits[np.arange(count), tokens] = self.margin + (self.moved if rows > 1 else 0)
        if self.tie is not None:
            logits[self.tie, 60] = self.margin + (0.01 if fp32 else -0.01)
        if fp32:
            logits += self.off_fp32
            tokens = logits.argmax(-1)
        cache = np.arange(1.0, count + 1) + (1e-6 if rows > 1 else 0)
        cache[0] *= self.first_entry
        return PlainRun(tokens, logits, None, {"length": np.array([count]), CACHE: cache})

    def replay(self, drafts: Drafts, tokens: int, stress: Stress | None = None) -> ReplayRun:
        self.seen.append(drafts)
        if stress and stress.sms and self.no_sms:
            raise NotOffered("no SMs in a toy")
        accepted: list[int] = []
        while sum(accepted) + len(accepted) < tokens:
            accepted.append(drafts.right[len(accepted) % len(drafts.right)])
        length = sum(accepted) + len(accepted)
        state = {"length": np.array([length]), CACHE: np.arange(1.0, length + 1) + self.gap}
        run = ReplayRun(np.arange(length) + 5, np.array(accepted), None, state)
        for change in self.changes:
            run = change(run, stress)
        return run


@dataclass(frozen=True, slots=True)
class Changes(PassEntry):
    """Changes what replays of a Toy give."""

    change: Change = lambda run, _stress: run

    @contextmanager
    def applied(self, target: Any) -> Iterator[None]:
        target.changes.append(self.change)
        try:
            yield
        finally:
            target.changes.remove(self.change)


def results(
    monkeypatch: pytest.MonkeyPatch,
    toy: Any,
    change: Change = lambda run, _stress: run,
    keeps_bits: bool = True,
) -> dict[str, GateResult]:
    entry = Changes("p", "", (), ("toy",), keeps_bits=keeps_bits, change=change)
    monkeypatch.setattr(registry, "PASSES", [entry])
    return {r.gate: r for r in check(lambda: toy, ["p"], tokens=TOKENS)}


def with_token(run: ReplayRun, at: int, token: int) -> ReplayRun:
    tokens = run.tokens.copy()
    tokens[at] = token
    return replace(run, tokens=tokens)


def with_cache(run: ReplayRun, at: int, add: float) -> ReplayRun:
    cache = run.state[CACHE].copy()
    cache[at] += add
    return replace(run, state={**run.state, CACHE: cache})


def test_what_is_equal_passes_every_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(monkeypatch, Toy())
    assert {n: str(r.verdict) for n, r in found.items()} == dict.fromkeys(
        ("tokens", "state", "restricted SMs", "delayed producer"), "passed"
    )
    assert found["tokens"].detail == (
        "12 greedy tokens equal with the passes on and off and without speculation; "
        "median margin 0.5, rounding 3e-08"
    )
    assert found["restricted SMs"].detail == "12 tokens, drafts accepted and state equal on 8 SMs"


@pytest.mark.parametrize("along", [False, True])
def test_drafts_follow_the_reference_where_the_target_needs_it(
    monkeypatch: pytest.MonkeyPatch, along: bool
) -> None:
    toy = Toy()
    toy.along_the_reference = along
    results(monkeypatch, toy)
    assert {drafts.forced for drafts in toy.seen} == {along}


def test_a_target_that_offers_nothing_is_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(monkeypatch, SimpleNamespace(name="toy"))
    assert {(str(r.verdict), r.detail) for r in found.values()} == {
        ("not tested", "target toy cannot replay drafts nor show its state")
    }
    assert isinstance(Toy(), Gateable)


def test_margins_below_rounding_are_no_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(monkeypatch, Toy(margin=0.01, moved=0.02))
    assert found["tokens"].verdict == "not tested"
    assert found["tokens"].detail == (
        "margins are not above rounding: median margin 0.01, rounding 0.02"
    )
    # A coarse precision has the same effect, though nothing moved: 0.5 of a largest logit of 0.01.
    found = results(monkeypatch, Toy(margin=0.01, roundoff=1.0))
    assert found["tokens"].verdict == "not tested"


def test_the_first_other_token_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said = results(monkeypatch, Toy(), lambda run, _: with_token(with_token(run, 9, 1), 7, 2))
    assert said["tokens"].verdict == "failed"
    assert said["tokens"].detail == "token 7 (from 0) is 2, with the passes off 12"
    assert said["tokens"].numbers["first_difference"] == 7


def test_a_loop_that_is_wrong_without_passes_says_nothing_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy = Toy(changes=[lambda run, _: with_token(run, 3, 50)])
    found = results(monkeypatch, toy)["tokens"]
    assert found.verdict == "not tested"
    assert found.detail == (
        "the loop is wrong with the passes off: token 3 (from 0) is 50, without speculation 8"
    )
    toy = Toy(gap=1.0)
    found = results(monkeypatch, toy)["state"]
    assert found.verdict == "not tested"
    assert found.detail.startswith("the loop is wrong with the passes off: layer 0 cache 0.083 off")


def test_a_single_other_bit_of_the_state_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(monkeypatch, Toy(), lambda run, _: with_cache(run, 4, 2.0**-50))["state"]
    assert found.verdict == "failed"
    assert found.detail == (
        "layer 0 cache: 1 of 12 values differ, the first at [4]: 5.000000000000001, "
        "with the passes off 5.0"
    )


def test_what_only_stress_shows_fails_there_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(
        monkeypatch,
        Toy(),
        lambda run, stress: with_token(run, 5, 0) if stress and stress.sms else run,
    )
    assert [str(r.verdict) for r in found.values()] == ["passed", "passed", "failed", "passed"]
    assert found["restricted SMs"].detail == (
        "on 8 SMs: token 5 (from 0) is 0, with the passes off and no stress 10"
    )


def test_stress_that_changes_the_loop_itself_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy(changes=[lambda run, stress: with_cache(run, 0, 1e-3) if stress else run])
    found = results(monkeypatch, toy)
    for gate in ("restricted SMs", "delayed producer"):
        assert found[gate].verdict == "not tested"
        assert found[gate].detail.startswith("the loop itself differs ")
    assert results(monkeypatch, Toy(no_sms=True))["restricted SMs"].detail == "no SMs in a toy"


def test_a_state_without_numbers_is_no_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    for nothing in (float("nan"), float("inf")):
        found = results(monkeypatch, Toy(first_entry=nothing))["state"]
        assert found.verdict == "not tested"
        assert found.detail == "the state without speculation is not finite"


def test_every_accepted_length_must_have_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_two(run: ReplayRun, _stress: Stress | None) -> ReplayRun:
        return replace(run, accepted=run.accepted.clip(max=1))

    found = results(monkeypatch, Toy(changes=[never_two]))["state"]
    assert found.verdict == "not tested"
    assert found.detail == (
        "the model did not accept each number of drafts: accepted 0 to 2 drafts in 2, 4, 0 steps"
    )


def test_drafts_are_right_equally_often_each_number(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy()
    results(monkeypatch, toy)
    (right,) = {drafts.right for drafts in toy.seen}
    assert all(sorted(right[n : n + 3]) == [0, 1, 2] for n in range(0, len(right), 3))
    assert {drafts.forced for drafts in toy.seen} == {False}
    assert {drafts.tokens for drafts in toy.seen} == {tuple(range(5, 5 + TOKENS + 9))}


def test_flips_within_rounding_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy(margin=2.0, tie=6)
    found = results(monkeypatch, toy, keeps_bits=False)["flips"]
    # The toy says token 11 at position 6 whatever is on; fp32 says 60, by 2.01 against 2.
    assert (found.numbers["argmax_flips"], found.numbers["argmax_flips_off"]) == (1, 1)
    assert found.numbers["rounding_most"] == pytest.approx(0.02, rel=1e-4)
    # One of 21 x 64 logits moved.
    assert found.numbers["rounding"] == pytest.approx(0.02 / (21 * 64) ** 0.5, rel=1e-4)
    assert found.verdict == "passed"
    assert found.detail == (
        "argmax flips against fp32: 1 of 12 (1 with the passes off); drafts accepted a step +0.000"
    )
    assert {d.forced for d in toy.seen} == {True}


def test_flips_mean_nothing_where_rounding_moves_more_than_the_margins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = results(monkeypatch, Toy(margin=2.0, off_fp32=3.0), keeps_bits=False)["flips"]
    assert found.verdict == "not tested"
    assert found.detail == (
        "margins are not above rounding: in fp32 2 in the median, "
        "with the passes off logits are 3 off fp32"
    )


def test_without_fp32_flips_are_counted_against_one_position_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_fp32(self: Toy, count: int, **more: Any) -> PlainRun:
        if more.get("fp32"):
            raise NotOffered("no fp32 in a toy")
        return plain(self, count, **more)

    plain = Toy.plain
    monkeypatch.setattr(Toy, "plain", no_fp32)
    found = results(
        monkeypatch, Toy(margin=2.0), lambda run, _: with_token(run, 6, 3), keeps_bits=False
    )["flips"]
    assert found.verdict == "failed"
    assert found.detail.startswith("token 6 (from 0) is 3, one position at a time 11 by 2, which")
    assert "argmax flips against one position at a time: 1 of 12 (0 with" in found.detail


def test_a_flip_that_rounding_does_not_explain_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(
        monkeypatch, Toy(margin=2.0), lambda run, _: with_token(run, 6, 3), keeps_bits=False
    )["flips"]
    assert found.verdict == "failed"
    assert found.detail.startswith(
        "token 6 (from 0) is 3, in fp32 11 by 2, which no rounding of 0.0078 explains; "
    )


@pytest.mark.parametrize(("steps", "verdict"), [(1, "failed"), (0, "passed")])
def test_accepted_drafts_may_differ_by_a_twentieth(
    monkeypatch: pytest.MonkeyPatch, steps: int, verdict: str
) -> None:
    """Six steps: one draft less in one of them is 0.167 a step."""

    def less(run: ReplayRun, _stress: Stress | None) -> ReplayRun:
        accepted = run.accepted.copy()
        accepted[np.flatnonzero(accepted)[:steps]] -= 1
        return replace(run, accepted=accepted)

    found = results(monkeypatch, Toy(), less, keeps_bits=False)["flips"]
    assert found.verdict == verdict
    assert found.numbers["accepted_change"] == pytest.approx(-steps / 6)


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_the_first_difference_is_where_prefixes_part(a: list[int], b: list[int]) -> None:
    at = compare.first_difference(np.array(a, np.int64), np.array(b, np.int64))
    if a == b:
        assert at is None
    else:
        assert at is not None
        assert a[:at] == b[:at]
        assert a[at : at + 1] != b[at : at + 1]


def test_states_are_compared_by_bits() -> None:
    zero, minus = {"x": np.array([0.0, 1.0])}, {"x": np.array([-0.0, 1.0])}
    assert compare.state_difference(zero, minus, "there").startswith("x: 1 of 2 values differ")
    nan = {"x": np.array([np.nan])}
    assert compare.state_difference(nan, nan, "there") == ""
    one = {"x": np.array([1.0])}
    assert compare.distance(nan, one) == compare.distance(one, nan) == (float("inf"), "x")
    assert compare.state_difference({"x": np.zeros(2)}, {"x": np.zeros(3)}, "there") == (
        "x: shape (2,), there (3,)"
    )
    ints = {"n": np.array([3])}, {"n": np.array([4])}
    assert compare.state_difference(*ints, "there") == (
        "n: 1 of 1 values differ, the first at [0]: 3, there 4"
    )


def test_distances_are_relative_to_the_largest_entry() -> None:
    a = {"x": np.array([8.0, 1.0]), "y": np.array([0.5])}
    b = {"x": np.array([8.0, 3.0]), "y": np.array([0.4])}
    assert compare.distance(a, b) == (0.25, "x")
    assert compare.distance(b, b) == (0.0, "")
    assert compare.top_margins(np.array([[1.0, 5.0, 3.5]], np.float32)).tolist() == [1.5]


def test_what_went_wrong_is_kept_without_what_it_went_wrong_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A traceback would keep the frames, and with them the weights of a target that is gone."""
    monkeypatch.setattr(registry, "PASSES", [Changes("p", "", (), ("toy",))])
    runs = Runs(Toy, TOKENS, 0, lambda _stage, _share: None)
    for error in (NotOffered("no"), ValueError("no")):
        reason = runs._with(("p",), lambda error=error: raised(error))
        assert isinstance(reason, Exception)
        assert reason.__traceback__ is None
        assert reason.__context__ is None


def raised(error: Exception) -> Any:
    raise error
