"""A plan carried out on a target whose times are known: what is measured, kept and gone on with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bubblescope.ablate import jobs
from bubblescope.ablate.ablation import Verdict as Worth
from bubblescope.ablate.ablation import summarise
from bubblescope.ablate.gates import GateResult, Verdict
from bubblescope.ablate.run import run
from bubblescope.ablate.samples import Predicted, Samples, load, save
from bubblescope.errors import BubblescopeError
from tests.ablate_toy import ABOUT, STEP, World, orders, samples, timed_jobs, world

__all__ = ["world"]


def carried_out(world: World, planned: Samples, **more: Any) -> Samples:
    return run(planned, gates=False, launch=world.launch, **more)


def test_every_round_is_measured_in_its_turn(world: World) -> None:
    found = carried_out(world, samples("fast", starts=2))
    assert orders(found) == [
        (0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 0),
        (1, 0, 1), (1, 0, 0), (1, 1, 0), (1, 1, 1),
    ]  # fmt: skip
    assert [r.part for r in found.rounds] == [0] * 8
    # Steps are as long as the toy makes them: neither warm-up nor the end is in them.
    assert found.rounds[0].steps_ns == [STEP] * 4
    assert found.rounds[1].steps_ns == [STEP - 100_000] * 4
    assert found.rounds[4].steps_ns == [(STEP - 100_000) * 101 // 100] * 4
    assert {r.tokens for r in found.rounds} == {8}
    # Each start: a first warm-up and four rounds, all from the same beginning.
    assert world.log[:7] == ["start", *["rewind"] * 5, "stop"]
    assert not any(toy.running or any(toy.switches.values()) for toy in world.toys)


def test_the_figures_are_those_of_the_toy(world: World) -> None:
    found = summarise(carried_out(world, samples("fast", "slow", "nothing")))
    none, fast, slow, nothing = found.rows
    assert none.step_ns == STEP * 101 // 100  # the start in the middle
    assert none.interval_ns == (STEP, STEP * 102 // 100)
    assert none.change is None
    assert (none.starts, none.rounds, none.gate) == (3, 6, "")
    assert none.tokens_per_step == 2
    assert none.tpot_ns == STEP * 101 // 200
    assert none.tokens_per_s == pytest.approx(2e9 / none.step_ns)
    assert none.p99_ns == STEP * 102 // 100
    for row, change, verdict in (
        (fast, -0.1, Worth.FASTER),
        (slow, 0.05, Worth.SLOWER),
        (nothing, 0, Worth.NOISE),
    ):
        assert row.change is not None
        assert row.change.change == pytest.approx(change)
        assert row.change.interval is not None
        assert (row.change.interval.low, row.change.interval.high) == pytest.approx((change,) * 2)
        assert row.change.verdict == verdict
        assert row.change.noise == pytest.approx(0)
        assert row.gate == "not tested"
        assert row.throttled is None
    assert found.compared == "step"


def test_a_pass_that_needs_a_restart_has_processes_of_its_own_in_turn(world: World) -> None:
    found = carried_out(world, samples("rebuilt", starts=4, rounds=1))
    assert [(j.fixed, list(j.live)) for j in timed_jobs(world)] == [
        ([], [0]),
        (["rebuilt"], [1]),
        (["rebuilt"], [1]),
        ([], [0]),
        (["rebuilt"], [1]),
        ([], [0]),
        ([], [0]),
        (["rebuilt"], [1]),
    ]
    made = summarise(found).rows[1].change
    assert made is not None
    # Starts differ by a per cent here, so that is the noise.
    assert made.change == pytest.approx(-0.2, abs=0.02)
    assert made.noise == pytest.approx(0.02, abs=0.005)


def test_live_and_other_passes_together(world: World) -> None:
    carried_out(world, samples("rebuilt", "fast", ladder="cumulative", starts=1))
    assert [(j.fixed, j.live) for j in timed_jobs(world)] == [
        ([], {0: []}),
        (["rebuilt"], {1: [], 2: ["fast"]}),
    ]


def test_fewer_than_three_starts_have_no_interval_and_claim_nothing(world: World) -> None:
    found = summarise(carried_out(world, samples("fast", "nothing", starts=2)))
    assert found.rows[0].interval_ns is None
    assert found.rows[0].tpot_interval_ns is None
    assert found.rows[1].change is not None
    assert found.rows[1].change.interval is None
    verdicts = [row.change.verdict for row in found.rows[1:] if row.change]
    assert verdicts == [Worth.NO_INTERVAL, Worth.NOISE]
    assert any("fewer than 3 starts a side: no interval" in note for note in found.notes)


def test_cumulative_rows_are_against_the_row_above_and_the_total_against_none(
    world: World,
) -> None:
    found = summarise(carried_out(world, samples("fast", "slow", ladder="cumulative")))
    changes = [row.change for row in found.rows[1:] if row.change]
    assert [c.against for c in changes] == ["none", "+ fast"]
    assert [c.change for c in changes] == pytest.approx([-0.1, 0.95 / 0.9 - 1])
    assert found.total is not None
    assert found.total.change == pytest.approx(-0.05)
    assert (found.total_label, found.total.against) == ("all, against none", "none")


def test_a_prediction_is_from_the_row_above_where_that_has_one(world: World) -> None:
    measured = carried_out(world, samples("fast", "slow", "nothing", ladder="cumulative"))
    said = [
        Predicted(1, 101_000),
        Predicted(2, None, "no model"),
        Predicted(2, -45_450, of=1),
        Predicted(3, None, "no model"),
        Predicted(3, None, "withheld", of=2),
    ]
    found = summarise(replace(measured, predicted=said))
    _, fast, slow, nothing = found.rows
    assert [row.step_ns for row in found.rows[:3]] == [1_010_000, 909_000, 959_500]
    assert [row.predicted_ns for row in found.rows] == [None, 909_000, 954_450, None]
    assert fast.change is not None
    assert slow.change is not None
    assert nothing.change is not None
    assert fast.change.predicted == pytest.approx(-0.1)
    assert slow.change.predicted == pytest.approx(0.05)
    assert (nothing.change.predicted, nothing.change.why_not) == (None, "withheld")
    # The sum is against none, from whose recording nothing is predicted of all.
    assert found.total is not None
    assert (found.total.predicted, found.total.why_not) == (None, "no model")


def test_a_failed_gate_takes_the_row_out_of_the_total(world: World) -> None:
    found = carried_out(world, samples("fast", "slow", ladder="cumulative"))
    said = [
        jobs.Checked(1, "tokens", "passed", ""),
        jobs.Checked(1, "stress", "not tested", "one thread"),
        jobs.Checked(2, "tokens", "failed", "differs at 3"),
        jobs.Checked(2, "state", "passed", ""),
    ]
    found = Samples(**{f: getattr(found, f) for f in found.__struct_fields__} | {"checked": said})
    made = summarise(found)
    assert [row.gate for row in made.rows] == ["", "passed", "failed"]
    assert made.rows[2].change is not None
    assert made.rows[2].change.verdict == Worth.FAILED
    assert [row.label for row in made.failed] == ["+ slow"]
    assert made.total is None  # what is left is one row, which says it already
    assert "rows with a failed gate are in no total" in made.notes


def test_a_target_that_is_checked_while_it_runs_is_the_one_that_is_timed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gates come before the rounds of the first start, and are not run again."""
    checked: list[tuple[object, tuple[str, ...]]] = []

    class Gates:
        def __init__(self, factory: Callable[[], Any]) -> None:
            self._made = factory().gated()

        def check(self, passes: Sequence[str]) -> tuple[GateResult, ...]:
            world.log.append("gate")
            checked.append((self._made, tuple(passes)))
            return (GateResult("tokens", Verdict.PASSED, "equal"),)

    monkeypatch.setattr("bubblescope.ablate.run.checked_running", lambda name: name == "toy")
    monkeypatch.setattr("bubblescope.ablate.gates.Gates", Gates)
    found = run(samples("fast", "slow", starts=2, rounds=1), launch=world.launch)
    assert [j.passes for j in timed_jobs(world)] == [{1: ["fast"], 2: ["slow"]}, {}]
    assert world.log[:3] == ["gate", "gate", "start"]
    assert world.log.count("start") == world.log.count("stop") == 2
    ours, other = world.toys
    assert checked == [(ours, ("fast",)), (ours, ("slow",))]
    assert (ours.set_up_to_be_checked, other.set_up_to_be_checked) == (True, False)
    assert [(c.rung, c.gate, c.verdict) for c in found.checked] == [
        (1, "tokens", "passed"),
        (2, "tokens", "passed"),
    ]
    assert [row.gate for row in summarise(found).rows] == ["", "passed", "passed"]


def test_a_pass_that_needs_a_restart_is_not_on_in_what_it_is_compared_with(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[tuple[str, ...], bool]] = []

    class Gates:
        def __init__(self, factory: Callable[[], Any]) -> None:
            self._made = factory().gated()

        def check(self, passes: Sequence[str]) -> tuple[GateResult, ...]:
            seen.append((tuple(passes), bool(self._made.switches["rebuilt"])))
            return (GateResult("tokens", Verdict.PASSED, "equal"),)

    monkeypatch.setattr("bubblescope.ablate.run.checked_running", lambda name: name == "toy")
    monkeypatch.setattr("bubblescope.ablate.gates.Gates", Gates)
    planned = samples("fast", "rebuilt", ladder="cumulative", starts=1, rounds=1)
    found = run(planned, launch=world.launch)
    assert seen == [(("fast",), False), (("fast", "rebuilt"), False)]
    # It is on when the row is timed: each start of the toy is 1 % slower, and the first row's was
    # the first.
    assert [row.step_ns for row in summarise(found).rows] == [1_000_000, 900_000, 707_000]


def test_gates_that_were_run_are_not_run_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[tuple[str, ...]] = []

    class Gates:
        def __init__(self, factory: Callable[[], Any]) -> None:
            pass

        def check(self, passes: Sequence[str]) -> tuple[GateResult, ...]:
            checked.append(tuple(passes))
            if len(checked) == 2:
                raise KeyboardInterrupt
            return (
                GateResult("tokens", Verdict.PASSED, ""),
                GateResult("state", Verdict.PASSED, ""),
            )

    monkeypatch.setattr("bubblescope.ablate.gates.Gates", Gates)
    planned = samples("fast", "slow", starts=1)
    kept: list[Samples] = []
    with pytest.raises(KeyboardInterrupt):
        run(planned, launch=world.launch, keep=kept.append)
    assert [(c.rung, c.gate) for c in kept[-1].checked] == [(1, "tokens"), (1, "state")]
    found = run(kept[-1], launch=world.launch)
    assert checked == [("fast",), ("slow",), ("slow",)]
    assert [row.gate for row in summarise(found).rows] == ["", "passed", "passed"]


def test_what_the_recording_says_stands_beside(world: World) -> None:
    found = carried_out(world, samples("fast"))
    assert [w.rung for w in found.windows] == [0, 1]
    window = summarise(found).rows[0].window
    assert window is not None
    assert (window.step_ns, window.idle_ns) == (1000, 400)
    assert (window.reads, window.launches) == (1, 1)
    # The toy records itself: its last start did, and it was not started again for it.
    assert not [j for j in world.jobs if isinstance(j, jobs.Record)]
    assert [bool(j.folder) for j in world.jobs if isinstance(j, jobs.Time)][-1]


def test_without_a_recording_the_times_stand_alone(world: World) -> None:
    world.recordable = False
    found = summarise(carried_out(world, samples("fast")))
    assert found.rows[0].window is not None
    assert found.rows[0].window.idle_ns is None
    assert "nothing recorded: target toy: cannot be recorded" in found.notes
    assert found.rows[1].change is not None
    assert found.rows[1].change.why_not == "not recorded"


def test_the_estimate_is_made_of_the_first_warm_up(world: World) -> None:
    said: list[float] = []
    planned = samples("fast", starts=1, rounds=2, steps=997)
    carried_out(world, planned, estimated=said.append)
    # 1 start, 2 rounds of 2 rungs, each 1,000 steps of 1 ms; starting the toy takes no time.
    assert said == [pytest.approx(4.0, abs=0.5)]


# Interruption and resumption ---------------------------------------------------------------------


class Stop:
    """Ctrl-C after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def __call__(self, stage: str, _share: float) -> None:
        if stage.startswith("start"):
            self.left -= 1
            if self.left < -1:  # the first call comes before the first round
                raise KeyboardInterrupt


def interrupted(world: World, planned: Samples, rounds: int, path: Path) -> Samples:
    def keep(found: Samples) -> None:
        save(found, path)

    with pytest.raises(KeyboardInterrupt):
        carried_out(world, planned, keep=keep, progress=Stop(rounds - 1))
    return load(path)


def test_finished_rounds_are_kept_and_the_rest_is_measured(world: World, tmp_path: Path) -> None:
    kept = interrupted(world, samples("fast", starts=2), 3, tmp_path / "x.json")
    assert orders(kept) == [(0, 0, 0), (0, 0, 1), (0, 1, 1)]
    assert world.log[-1] == "stop"  # the target is gone
    assert kept.missing(0) == [1]
    assert kept.missing(1) == [0, 1]
    found = carried_out(world, kept)
    # The round that was cut off is measured again for both rows, in a part of its own.
    assert [(r.part, r.start, r.number, r.rung) for r in found.rounds[3:]] == [
        (1, 0, 1, 1), (1, 0, 1, 0),
        (1, 1, 0, 1), (1, 1, 0, 0), (1, 1, 1, 0), (1, 1, 1, 1),
    ]  # fmt: skip
    made = summarise(found)
    assert made.rows[0].rounds == made.rows[1].rounds == 4
    assert made.rows[0].starts == 3  # what a part measured of a start is a start of its own
    assert any("measured in 2 parts, each with its baseline" in note for note in made.notes)


def test_a_part_that_lacks_the_baseline_counts_for_nothing(world: World, tmp_path: Path) -> None:
    planned = samples("rebuilt", starts=1, rounds=2)
    kept = interrupted(world, planned, 2, tmp_path / "x.json")
    assert orders(kept) == [(0, 0, 0), (0, 1, 0)]  # the other process was not reached
    assert kept.missing(0) == [0, 1]
    with pytest.raises(BubblescopeError, match="no round was measured for every row"):
        summarise(kept)
    found = carried_out(world, kept)
    assert summarise(found).rows[0].rounds == 2
    assert [j.fixed for j in timed_jobs(world)] == [[], [], ["rebuilt"]]


def test_nothing_is_measured_twice(world: World) -> None:
    found = carried_out(world, samples("fast"))
    before = len(world.jobs)
    again = carried_out(world, found)
    assert again == found
    assert len(world.jobs) == before


def test_another_machine_is_refused_and_the_rounds_stay(world: World, tmp_path: Path) -> None:
    kept = interrupted(world, samples("fast"), 2, tmp_path / "x.json")
    world.about = ABOUT | {"device": "another"}
    with pytest.raises(BubblescopeError, match="measured with device 'none', this is 'another'"):
        carried_out(world, kept)
    assert load(tmp_path / "x.json") == kept


def test_samples_survive_a_file(world: World, tmp_path: Path) -> None:
    found = carried_out(world, samples("fast", "slow", ladder="leave-one-out"))
    save(found, tmp_path / "x.json")
    assert load(tmp_path / "x.json") == found
    assert summarise(load(tmp_path / "x.json")) == summarise(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a file of `bubblescope ablate --out`"),
        ('{"rounds": []}', "not a file of"),
        ("\xff", "not a file of"),
        (None, "cannot be read: No such file"),
    ],
)
def test_no_samples(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text, "latin-1")
    with pytest.raises(BubblescopeError, match=said):
        load(path)


def test_samples_of_a_newer_version(world: World, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    save(samples("fast"), path)
    path.write_text(path.read_text().replace('"version":1', '"version":2', 1))
    with pytest.raises(BubblescopeError, match="newer bubblescope"):
        load(path)
