"""Gate tokens: passes that keep bits change no greedy token, nor how many drafts are accepted."""

from __future__ import annotations

from bubblescope.ablate.gates.compare import (
    NEAR_TIE_ROUNDINGS,
    first_difference,
    margins,
    token_difference,
)
from bubblescope.ablate.gates.model import GateResult, Verdict
from bubblescope.ablate.gates.runs import Case

NAME = "tokens"


def judge(case: Case) -> GateResult:
    """Tokens with the passes on, off, and without speculation."""
    off, plain = case.off(), case.runs.reference().tokens
    ahead = margins(case)
    numbers = {"median_margin": ahead.median, "rounding": ahead.rounding}
    figures = f"median margin {ahead.median:.2g}, rounding {ahead.rounding:.2g}"
    if not ahead.median > ahead.rounding:
        return GateResult(
            NAME, Verdict.NOT_TESTED, f"margins are not above rounding: {figures}", numbers
        )
    on, count = case.on(), case.runs.tokens
    plain, before, after = plain[:count], off.tokens[:count], on.tokens[:count]
    wrong = first_difference(before, plain)
    if wrong is not None and ahead.each[wrong] > NEAR_TIE_ROUNDINGS * ahead.rounding:
        said = token_difference(before, plain, "without speculation")
        return GateResult(
            NAME, Verdict.NOT_TESTED, f"the loop is wrong with the passes off: {said}", numbers
        )
    at = first_difference(after, before)
    if at is not None:
        said = token_difference(after, before, "with the passes off")
        return GateResult(NAME, Verdict.FAILED, said, numbers | {"first_difference": float(at)})
    step = first_difference(on.accepted, off.accepted)
    if step is not None:
        here, there = (r.accepted[step : step + 1].tolist() for r in (on, off))
        said = f"equal tokens, but step {step} accepted {here} drafts, with the passes off {there}"
        return GateResult(NAME, Verdict.FAILED, said, numbers)
    beside = (
        "and without speculation"
        if wrong is None
        else f"(without speculation other ones from {wrong} on, by rounding)"
    )
    detail = f"{count} greedy tokens equal with the passes on and off {beside}; {figures}"
    return GateResult(NAME, Verdict.PASSED, detail, numbers | {"tokens": float(count)})
