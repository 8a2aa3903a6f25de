"""Gate flips: passes that round are counted against fp32, and accept as many drafts as before.

Where the target cannot be had in fp32, they are counted against itself without passes, one position
at a time; how far rounding moves logits is then seen from positions run in windows.
"""

from __future__ import annotations

import numpy as np

from bubblescope.ablate.gates.compare import NEAR_TIE_ROUNDINGS, margins, top_margins
from bubblescope.ablate.gates.model import GateResult, Verdict
from bubblescope.ablate.gates.runs import Case
from bubblescope.targets.gated import NotOffered, PlainRun, ReplayRun, Tokens

NAME = "flips"
ACCEPTED = 0.05
"""By how much the mean of accepted drafts a step may differ."""
BF16 = 2.0**-8


def judge(case: Case) -> GateResult:
    """Argmax and expert flips against fp32, with the passes on and off, along the same tokens."""
    off = case.off()
    plain = case.runs.reference()
    along = tuple(plain.tokens.tolist())
    try:
        wide, against, there = case.runs.plain((), along, fp32=True), "fp32", "in fp32"
        moved, widened = np.abs(plain.logits - wide.logits), BF16
    except NotOffered:
        wide, against, there = plain, "one position at a time", "one position at a time"
        widened = 0.0
        windows = case.runs.plain((), along, rows=case.runs.target.drafts + 1)
        moved = np.abs(plain.logits - windows.logits)
    ahead = top_margins(wide.logits)
    typical, median = float(np.sqrt((moved**2).mean())), float(np.median(ahead))
    numbers = {"median_margin": median, "rounding": typical}
    if not median > typical:
        detail = (
            f"margins are not above rounding: {there} {median:.2g} in the median, with the passes "
            f"off logits are {typical:.2g} off {against}"
        )
        return GateResult(NAME, Verdict.NOT_TESTED, detail, numbers)
    # A pass may round to bf16 where the target itself computes in fp32.
    scale = float(np.abs(wide.logits).max())
    most = max(margins(case).rounding, float(moved.max()), widened * scale)
    on = case.on()
    count = min(len(on.tokens), len(off.tokens))
    flipped, before = (np.flatnonzero(r.tokens[:count] != wide.tokens[:count]) for r in (on, off))
    apart = float(on.accepted.mean() - off.accepted.mean())
    experts, experts_before = (_expert_flips(run, wide) for run in (on, off))
    numbers |= {
        "tokens": float(count),
        "argmax_flips": float(len(flipped)),
        "argmax_flips_off": float(len(before)),
        "accepted_change": apart,
        "rounding_most": most,
    }
    detail = (
        f"argmax flips against {against}: {len(flipped)} of {count} ({len(before)} with the "
        "passes off)"
    )
    if experts and experts_before:
        numbers |= {
            "expert_flips": float(experts[0]),
            "expert_flips_off": float(experts_before[0]),
            "expert_choices": float(experts[1]),
        }
        detail += f"; experts: {experts[0]} of {experts[1]} choices ({experts_before[0]})"
    detail += f"; drafts accepted a step {apart:+.3f}"
    far = flipped[ahead[flipped] > NEAR_TIE_ROUNDINGS * most]
    if len(far):
        at, margin = int(far[0]), float(ahead[far[0]])
        detail = (
            f"token {at} (from 0) is {on.tokens[at]}, {there} {wide.tokens[at]} by "
            f"{margin:.2g}, "
            f"which no rounding of {most:.2g} explains; {detail}"
        )
        return GateResult(NAME, Verdict.FAILED, detail, numbers)
    if abs(apart) > ACCEPTED:
        return GateResult(NAME, Verdict.FAILED, f"{detail}, over {ACCEPTED:g}", numbers)
    return GateResult(NAME, Verdict.PASSED, detail, numbers)


def _expert_flips(run: ReplayRun, wide: PlainRun) -> tuple[int, int] | None:
    """Experts that were chosen and in fp32 are not, and choices in all; None without experts."""
    if run.experts is None or wide.experts is None:
        return None
    count = min(len(run.experts), len(wide.experts))
    mine, theirs = run.experts[:count], wide.experts[:count]
    return int((~_member(mine, theirs)).sum()), mine.size


def _member(mine: Tokens, theirs: Tokens) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whether each of the last axis is anywhere in the other's last axis."""
    made = (mine[..., :, np.newaxis] == theirs[..., np.newaxis, :]).any(-1)
    return np.asarray(made)
