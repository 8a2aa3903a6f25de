"""Budgets against a run: a line each, passed or failed.

What was not measured never passes: without whole steps a limit a step is an error, and idle fails
where more than 1 % of the window is unknown.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from bubblescope.check import culprits
from bubblescope.check.budget import Budget
from bubblescope.check.model import Baseline, CheckLine, Culprit, Unit
from bubblescope.compare import comparable, tally
from bubblescope.compare.model import Middle
from bubblescope.compare.rows import place
from bubblescope.compare.run import Run
from bubblescope.diagnose.model import Diagnosis, Part
from bubblescope.errors import BubblescopeError
from bubblescope.timeline.tables import Int

UNKNOWN = Fraction(1, 100)
"""With more of the window unknown than this, nobody can tell how much of it was idle."""


def evaluate(run: Run, budget: Budget, against: Baseline | None = None) -> tuple[CheckLine, ...]:
    """A line for each limit, in the order of the budget's fields, then those of the baseline.

    Raises:
        BubblescopeError: something that is limited was not measured at all.
    """
    diagnosis = run.diagnosis
    lines: list[CheckLine] = []
    if budget.max_reads is not None:
        lines.append(_reads(run, budget.max_reads))
    if budget.max_reads_in_all is not None:
        _host_calls(run, "blocking reads")
        found = sum(read.calls for read in diagnosis.reads)
        blame = culprits.reads(diagnosis, per_step=False)
        lines.append(
            _line("blocking reads in all", Unit.COUNT, found, budget.max_reads_in_all, blame)
        )
    if budget.max_idle_share is not None:
        lines.append(_idle_share(diagnosis, budget.max_idle_share))
    if budget.max_idle_ns is not None:
        lines.append(_idle(diagnosis, "idle a step", Fraction(budget.max_idle_ns)))
    if budget.max_step_ns is not None:
        step = _median(diagnosis, diagnosis.steps.length_ns, "the step").median or 0
        limit = Fraction(budget.max_step_ns)
        lines.append(_line("step", Unit.NS, step, limit, culprits.idle(diagnosis)))
    if budget.max_launches is not None:
        lines.append(_launches(run, budget.max_launches))
    return (*lines, *(_against(run, against) if against is not None else ()))


def _line(
    name: str,
    unit: Unit,
    measured: int | Fraction,
    limit: Fraction,
    blame: tuple[Culprit, ...],
    note: str = "",
) -> CheckLine:
    passed = measured <= limit
    return CheckLine(name, unit, Fraction(measured), limit, passed, note, () if passed else blame)


def _median(diagnosis: Diagnosis, values: Int, what: str) -> Middle:
    """Over the steps that count; an error where there are none."""
    counted = diagnosis.steps.counted()
    if not counted.any():
        raise BubblescopeError(
            f"{diagnosis.meta.source}: no step was recorded whole, so {what} cannot be checked; "
            "record more steps, or name the range that begins each as the marker"
        )
    return Middle.of(values[counted])


def _host_calls(run: Run, what: str) -> None:
    """An error where the host's side was not recorded, so that nothing of it can be counted."""
    if not len(run.timeline.host_calls):
        raise BubblescopeError(
            f"{run.diagnosis.meta.source}: no host call in it, so {what} cannot be checked; "
            "record it again with the CPU side on"
        )


def _reads_per_step(run: Run) -> Fraction:
    """Blocking reads a step: the mean over the steps that count, exactly."""
    _host_calls(run, "blocking reads")
    diagnosis = run.diagnosis
    _median(diagnosis, diagnosis.steps.length_ns, "blocking reads a step")
    steps = int(diagnosis.steps.counted().sum())
    return Fraction(sum(round((r.calls_per_step or 0) * steps) for r in diagnosis.reads), steps)


def _reads(run: Run, limit: Fraction, name: str = "blocking reads a step") -> CheckLine:
    blame = culprits.reads(run.diagnosis, per_step=True)
    return _line(name, Unit.COUNT, _reads_per_step(run), limit, blame)


def _idle_ns(diagnosis: Diagnosis) -> Int:
    """Idle of every step, the unknown left out."""
    parts = diagnosis.steps.parts_ns
    return np.asarray(parts.sum(axis=1) - parts[:, Part.UNKNOWN], np.int64)


def _doubt(diagnosis: Diagnosis) -> str:
    """Why nobody can tell how much was idle, "" where it can be told."""
    window, unknown = diagnosis.total("window_ns"), diagnosis.total("unknown_ns")
    if not window or Fraction(unknown, window) <= UNKNOWN:
        return ""
    return f"cannot tell: {100 * unknown / window:.1f} % of the window is unknown"


def _inside_graphs(diagnosis: Diagnosis) -> str:
    opaque = diagnosis.total("opaque_ns")
    return "idle inside graphs is not in it: replays were recorded whole" if opaque else ""


def _idle_share(diagnosis: Diagnosis, limit: Fraction) -> CheckLine:
    doubt = _doubt(diagnosis)
    if doubt:
        return CheckLine("idle", Unit.SHARE, None, limit, False, doubt)
    if diagnosis.steps.counted().any():
        whole = diagnosis.steps.busy_ns + diagnosis.steps.parts_ns.sum(axis=1)
        idle = _median(diagnosis, _idle_ns(diagnosis), "idle").median or 0
        window = _median(diagnosis, whole, "idle").median or 0
    else:
        idle, window = diagnosis.total("idle_ns"), diagnosis.total("window_ns")
    measured = Fraction(idle, window) if window else Fraction(0)
    blame, note = culprits.idle(diagnosis), _inside_graphs(diagnosis)
    return _line("idle", Unit.SHARE, measured, limit, blame, note)


def _idle(diagnosis: Diagnosis, name: str, limit: Fraction, doubt: str = "") -> CheckLine:
    idle = _median(diagnosis, _idle_ns(diagnosis), "idle a step").median or 0
    doubt = doubt or _doubt(diagnosis)
    if doubt:
        return CheckLine(name, Unit.NS, None, limit, False, doubt)
    blame = culprits.idle(diagnosis)
    return _line(name, Unit.NS, idle, limit, blame, _inside_graphs(diagnosis))


def _launches(run: Run, limit: Fraction) -> CheckLine:
    _host_calls(run, "launches")
    steps = run.diagnosis.steps
    _median(run.diagnosis, steps.length_ns, "launches a step")
    rows = place(run)
    found = tally.launches(run, rows)
    measured = found.count_per_step.median or 0
    blame = culprits.launches(tally.calls(run, rows))
    return _line("launches a step", Unit.COUNT, measured, limit, blame)


def _against(run: Run, baseline: Baseline) -> list[CheckLine]:
    """Step, idle and reads of a run, none worse than the baseline's."""
    before, after = baseline.run.diagnosis, run.diagnosis
    more, name = 1 + baseline.tolerance, baseline.name

    def limit(values: Int, what: str) -> Fraction:
        # Steps of one run differ among themselves: a limit within that would fail at random.
        middle = _median(before, values, f"{what} against baseline {name}")
        known = Fraction(middle.median or 0)
        return max(known * more, known + (middle.spread or 0))

    can = comparable.check(baseline.run, run)
    care = "; ".join(can.settings)
    step = _median(after, after.steps.length_ns, "the step").median or 0
    step_limit = limit(before.steps.length_ns, "the step")
    doubt = f"cannot tell: {can.why_not}" if not can.idle else ""
    reads = _reads_per_step(baseline.run)
    return [
        _line(
            f"step against {name}",
            Unit.NS,
            step,
            step_limit,
            culprits.idle(after),
            _sides(care, name),
        ),
        _idle(
            after,
            f"idle a step against {name}",
            limit(_idle_ns(before), "idle"),
            _sides(doubt, name),
        ),
        _reads(run, reads * more, f"blocking reads a step against {name}"),
    ]


def _sides(note: str, name: str) -> str:
    """A comparison's note, which calls the two A and B."""
    return f"{note} (A is {name})" if note else ""
