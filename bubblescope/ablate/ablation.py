"""From samples to an Ablation: frozen figures, one row a rung. Times in ns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bubblescope.ablate import jobs
from bubblescope.ablate.plan import LEAST_STARTS, Passes, Plan, Rung
from bubblescope.ablate.samples import Predicted, Samples, Window
from bubblescope.ablate.statistics import Interval, Resampled, noise
from bubblescope.errors import BubblescopeError

SIMULATED = "simulated acceptance"


class Verdict(StrEnum):
    """What a change is worth."""

    FASTER = "faster"
    SLOWER = "slower"
    NOISE = "noise"
    NO_INTERVAL = "no interval"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Change:
    """A time over its reference's, less 1: -0.04 is 4 % less.

    against: what the reference is called. interval: None with fewer than 3 starts a side. noise:
    what the baseline against itself may show; None with a single round. saving_ns: predicted.
    predicted: the same as a change; None where there is none, and why.
    """

    against: str
    change: float
    interval: Interval | None
    noise: float | None
    verdict: Verdict
    predicted: float | None
    why_not: str


@dataclass(frozen=True, slots=True)
class Row:
    """One rung: the passes that were on, and what a step took, medians over rounds.

    passes: the baseline has none. p99_ns: over all steps of all rounds. throttled: how many of the
    rounds ran with the device's clocks held down; None where that cannot be asked. predicted_ns:
    the baseline's step less what the passes are predicted to save. window: of its recording.
    gate: "passed", "failed", "not tested", "" for the baseline. checked: what each gate said.
    """

    label: str
    passes: Passes
    starts: int
    rounds: int
    throttled: int | None
    step_ns: int
    interval_ns: tuple[int, int] | None
    p99_ns: int
    tokens_per_step: float
    tpot_ns: int
    tpot_interval_ns: tuple[int, int] | None
    tokens_per_s: float
    change: Change | None
    predicted_ns: int | None
    window: Window | None
    floor_share: float | None
    gate: str
    checked: tuple[jobs.Checked, ...]


@dataclass(frozen=True, slots=True)
class Ablation:
    """All that an ablation says.

    compared: "step" or "TPOT", what changes are changes of: with simulated acceptance a pass cannot
    change how many tokens are accepted, so that only the step tells. total: of the last rung that
    did not fail against none, where a ladder adds up. floor_ns: least time of a step. notes: what
    the figures rest on.
    """

    target: str
    about: dict[str, str]
    versions: dict[str, str]
    plan: Plan
    parts: int
    rows: tuple[Row, ...]
    total: Change | None
    total_label: str
    compared: str
    floor_ns: int | None
    notes: tuple[str, ...]

    @property
    def failed(self) -> tuple[Row, ...]:
        """Rows with a gate that failed."""
        return tuple(r for r in self.rows if r.gate == "failed")


def summarise(samples: Samples, *, seed: int = 0) -> Ablation:
    """The figures of all whole rounds; the same samples and seed give the same.

    Raises:
        BubblescopeError: there is no whole round yet.
    """
    plan, rungs = samples.plan, samples.plan.rungs
    whole = samples.whole()
    counted = [r for r in samples.rounds if (r.part, r.start, r.number) in whole]
    if not counted:
        raise BubblescopeError("no round was measured for every row yet: nothing to compare")
    compared = "step" if SIMULATED in samples.about.get("acceptance", "") else "TPOT"
    tokens = [_tokens(counted, index) for index in range(len(rungs))]
    steps = _Measured.of(counted, [1.0] * len(rungs), seed)
    tpot = _Measured.of(counted, tokens, seed)
    sides = len(steps.starts)
    floor_ns = None
    if samples.ceiling is not None:
        floor_ns = round(samples.ceiling.floor_bytes * 10**9 / samples.ceiling.bytes_per_s)
    forecast = _Forecast(samples.predicted, steps)
    gates = [_gate(index, rung, samples.checked) for index, rung in enumerate(rungs)]
    asked = steps if compared == "step" else tpot

    def change(index: int, against: int) -> Change:
        predicted_ns, before_ns, why_not = forecast.of(index, against)
        predicted = None if predicted_ns is None else predicted_ns / before_ns - 1
        value = asked.resampled.change(index, against)
        interval = (
            asked.resampled.change_interval(index, against) if sides >= LEAST_STARTS else None
        )
        own = asked.noise(_together(plan, index, against), seed)
        failed = gates[index] == "failed"
        verdict = Verdict.FAILED if failed else _verdict(value, interval, own)
        return Change(rungs[against].label, value, interval, own, verdict, predicted, why_not)

    rows = []
    for index, rung in enumerate(rungs):
        mine = [r for r in counted if r.rung == index]
        step_ns = round(steps.resampled.median(index))
        held = [r.throttled for r in mine if r.throttled is not None]
        rows.append(
            Row(
                label=rung.label,
                passes=rung.passes,
                starts=sides,
                rounds=len(mine),
                throttled=sum(bool(t) for t in held) if held else None,
                step_ns=step_ns,
                interval_ns=steps.interval_ns(index),
                p99_ns=round(float(np.quantile(np.concatenate([r.steps_ns for r in mine]), 0.99))),
                tokens_per_step=tokens[index],
                tpot_ns=round(tpot.resampled.median(index)),
                tpot_interval_ns=tpot.interval_ns(index),
                tokens_per_s=1e9 / tpot.resampled.median(index),
                change=change(index, rung.against) if index else None,
                predicted_ns=forecast.of(index, rung.against)[0] if index else None,
                window=next((w for w in samples.windows if w.rung == index), None),
                floor_share=floor_ns / step_ns if floor_ns is not None else None,
                gate=gates[index],
                checked=tuple(c for c in samples.checked if c.rung == index),
            )
        )
    last = _last(plan, gates)
    return Ablation(
        target=samples.target,
        about=samples.about,
        versions=samples.versions,
        plan=plan,
        parts=samples.parts(),
        rows=tuple(rows),
        total=change(last, 0) if last else None,
        total_label=_sum_label(rungs, last),
        compared=compared,
        floor_ns=floor_ns,
        notes=_notes(samples, rows, sides, compared, gates),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """Times of the rounds that count, by start and round, and the draws of them."""

    starts: list[np.ndarray]
    resampled: Resampled

    @classmethod
    def of(cls, counted: Sequence[jobs.Round], divisors: Sequence[float], seed: int) -> _Measured:
        found: dict[tuple[int, int], dict[int, dict[int, float]]] = {}
        for r in counted:
            mean = sum(r.steps_ns) / len(r.steps_ns) / divisors[r.rung]
            found.setdefault((r.part, r.start), {}).setdefault(r.number, {})[r.rung] = mean
        starts = [
            np.array(
                [[row[k] for k in range(len(divisors))] for _, row in sorted(of_start.items())]
            )
            for _, of_start in sorted(found.items())
        ]
        return cls(starts, Resampled(starts, seed=seed))

    def interval_ns(self, rung: int) -> tuple[int, int] | None:
        if len(self.starts) < LEAST_STARTS:
            return None
        found = self.resampled.interval(rung)
        return round(found.low), round(found.high)

    def noise(self, shared: bool, seed: int) -> float | None:
        return noise(self.starts, 0, shared=shared, seed=seed)


@dataclass(frozen=True, slots=True)
class _Forecast:
    """Steps as predicted: from the recording of the row that a row is compared with.

    Where that says nothing, both are predicted from the baseline's.
    """

    predicted: Sequence[Predicted]
    steps: _Measured

    def of(self, rung: int, against: int) -> tuple[int | None, int, str]:
        """The step of a rung, None where it is not predicted; that of `against`; and why not."""
        baseline_ns = round(self.steps.resampled.median(0))
        own, mine, theirs = (self._find(*at) for at in ((rung, against), (rung, 0), (against, 0)))
        if own is not None and own.saving_ns is not None:
            start_ns = round(self.steps.resampled.median(against))
            return start_ns - own.saving_ns, start_ns, ""
        saved = [None if p is None else p.saving_ns for p in (mine, theirs)]
        if saved[0] is not None and saved[1] is not None:
            return baseline_ns - saved[0], baseline_ns - saved[1], ""
        whys = [p.why for p in (own, mine, theirs) if p is not None and p.why]
        return None, baseline_ns, (whys or ["not recorded"])[0]

    def _find(self, rung: int, of: int) -> Predicted | None:
        return next((p for p in self.predicted if (p.rung, p.of) == (rung, of)), None)


def _tokens(counted: Sequence[jobs.Round], rung: int) -> float:
    """Tokens that a step of the rung gave in the mean."""
    mine = [r for r in counted if r.rung == rung]
    given, steps = sum(r.tokens for r in mine), sum(r.token_steps for r in mine)
    if not given:
        raise BubblescopeError("the target gave no token in any timed step: there is no TPOT")
    return given / steps


def _together(plan: Plan, rung: int, other: int) -> bool:
    """Whether one process runs both."""
    return any(rung in group and other in group for group in plan.groups)


def _verdict(change: float, interval: Interval | None, own: float | None) -> Verdict:
    """See docs/ablate.md: noise is what the baseline shows against itself, or may be nothing."""
    if (own is not None and abs(change) <= own) or (interval is not None and interval.holds(0.0)):
        return Verdict.NOISE
    if interval is None or own is None:
        return Verdict.NO_INTERVAL
    return Verdict.FASTER if change < 0 else Verdict.SLOWER


def _gate(index: int, rung: Rung, checked: Sequence[jobs.Checked]) -> str:
    """Of all gates of a rung: failed if one is, passed if one is and none failed."""
    if not rung.passes:
        return ""
    said = {c.verdict for c in checked if c.rung == index}
    return next((v for v in ("failed", "passed") if v in said), "not tested")


def _last(plan: Plan, gates: Sequence[str]) -> int:
    """The rung to set against none: the last that did not fail; 0 where it has a row of its own."""
    if plan.ladder != "cumulative":
        return 0
    last = max(i for i in range(len(plan.rungs)) if gates[i] != "failed")
    return last if last > 1 else 0


def _sum_label(rungs: Sequence[Rung], last: int) -> str:
    if not last:
        return ""
    everything = last == len(rungs) - 1
    return "all, against none" if everything else f"down to {rungs[last].label}, against none"


def left_out(samples: Samples) -> list[str]:
    """What is said of the target's passes that cannot be put on it here: a line a reason."""
    names: dict[str, list[str]] = {}
    for name, reason in samples.left_out.items():
        names.setdefault(reason, []).append(name)
    return [f"not measured: {', '.join(found)} ({reason})" for reason, found in names.items()]


def _notes(
    samples: Samples, rows: Sequence[Row], sides: int, compared: str, gates: Sequence[str]
) -> tuple[str, ...]:
    """What a reader must know of the figures."""
    plan, said = samples.plan, []
    if sides < LEAST_STARTS:
        said.append(
            f"fewer than {LEAST_STARTS} starts a side: no interval, so no row can be called faster "
            "or slower"
        )
    if compared == "step":
        said.append("simulated acceptance: a pass cannot change accepted tokens here")
    if len(plan.groups) > 1:
        said.append("rows that need a restart were measured in processes of their own, in turn")
    said += left_out(samples)
    throttled = sum(r.throttled or 0 for r in rows)
    if throttled:
        said.append(f"the device's clocks were held down in {throttled} of the rounds: see --json")
    said += sorted({f"nothing recorded: {w.why}" for w in samples.windows if w.why})
    captures = sorted({w.capture for w in samples.windows if w.capture})
    if captures:
        said.append(
            "idle, reads and launches come from short windows recorded apart, not from the timed "
            f"rounds: {'; '.join(captures)}"
        )
    if samples.parts() > 1:
        said.append(f"measured in {samples.parts()} parts, each with its baseline")
    if "failed" in gates:
        said.append("rows with a failed gate are in no total")
    return tuple(said)
