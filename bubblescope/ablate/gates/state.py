"""Gate state: after a mix of accepted lengths, states and caches are those without speculation."""

from __future__ import annotations

import numpy as np

from bubblescope.ablate.gates.compare import distance, state_difference
from bubblescope.ablate.gates.model import GateResult, Verdict
from bubblescope.ablate.gates.runs import Case
from bubblescope.targets.gated import ReplayRun

NAME = "state"
TOLERANCE = 8
"""The state may be so many times as far off as the same positions are when run in windows."""


def judge(case: Case) -> GateResult:
    """Bit by bit against the passes off, where they keep bits; within rounding against no drafts.

    Passes that round are compared with a run without speculation that has them on too.
    """
    off = case.off()
    drafts = case.runs.target.drafts
    steps = np.bincount(off.accepted, minlength=drafts + 1)
    mix = f"accepted 0 to {drafts} drafts in {', '.join(map(str, steps))} steps"
    numbers = {f"steps_accepting_{n}": float(count) for n, count in enumerate(steps)}
    if not steps.all():
        detail = f"the model did not accept each number of drafts: {mix}"
        return GateResult(NAME, Verdict.NOT_TESTED, detail, numbers)
    apart, allowed, where = (
        _apart(case, off, ()) if case.keeps_bits else _apart(case, case.on(), case.passes)
    )
    if not np.isfinite(allowed):
        detail = "the state without speculation is not finite"
        return GateResult(NAME, Verdict.NOT_TESTED, detail, numbers)
    numbers |= {"apart": apart, "allowed": allowed}
    if case.keeps_bits:
        if apart > allowed:
            detail = f"the loop is wrong with the passes off: {_said(apart, allowed, where)}"
            return GateResult(NAME, Verdict.NOT_TESTED, detail, numbers)
        said = state_difference(case.on().state, off.state, "with the passes off")
        if said:
            return GateResult(NAME, Verdict.FAILED, said, numbers)
        kept = "the bits of the passes off"
    else:
        if apart > allowed:
            return GateResult(NAME, Verdict.FAILED, _said(apart, allowed, where), numbers)
        kept = "as without speculation"
    detail = f"{mix}; {kept}, {_said(apart, allowed, where)}"
    return GateResult(NAME, Verdict.PASSED, detail, numbers)


def _apart(case: Case, run: ReplayRun, passes: tuple[str, ...]) -> tuple[float, float, str]:
    """How far a replay's state is from one without speculation, how far it may be, and where."""
    along = case.committed(run)
    plain = case.runs.plain(passes, along).state
    windows = case.runs.plain(passes, along, rows=case.runs.target.drafts + 1).state
    apart, where = distance(run.state, plain)
    return apart, TOLERANCE * distance(windows, plain)[0], where


def _said(apart: float, allowed: float, where: str) -> str:
    if not apart:
        return "bit by bit that without speculation"
    return f"{where} {apart:.2g} off that without speculation, rounding allows {allowed:.2g}"
