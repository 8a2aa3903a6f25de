"""Where two runs differ, and by how much rounding makes them differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bubblescope.ablate.gates.runs import Case
from bubblescope.targets.gated import ReplayRun, State, Tokens

NEAR_TIE_ROUNDINGS = 2
"""A token may flip where its margin is at most so many roundings: each of two logits moves."""


@dataclass(frozen=True, slots=True)
class Margins:
    """How far the most likely token of each position is ahead of the next one.

    each: top-1 less top-2 logit, fp32, (n,). rounding: by how much a logit moves for no other
    reason: the most that one did when the same positions were run in windows, or one rounding of
    the largest logit, whichever is more.
    """

    each: NDArray[np.float32]
    rounding: float

    @property
    def median(self) -> float:
        """Over positions."""
        return float(np.median(self.each))


def margins(case: Case) -> Margins:
    """Of the run without speculation and passes, along the tokens of the replay without passes."""
    along = case.committed(case.off())
    window = case.runs.target.drafts + 1
    alone = case.runs.plain((), along).logits
    windows = case.runs.plain((), along, rows=window).logits
    moved = float(np.abs(alone - windows).max())
    once = case.runs.target.roundoff * float(np.abs(alone).max())
    return Margins(top_margins(alone), max(moved, once))


def top_margins(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Top-1 less top-2 of each row."""
    second, first = np.partition(logits, -2, axis=-1)[:, -2:].T
    made: NDArray[np.float32] = first - second
    return made


def first_difference(a: Tokens, b: Tokens) -> int | None:
    """Index of the first entry that differs or that only one has; None where there is none."""
    both = min(len(a), len(b))
    unequal = np.flatnonzero(a[:both] != b[:both])
    if len(unequal):
        return int(unequal[0])
    return None if len(a) == len(b) else both


def token_difference(a: Tokens, b: Tokens, other: str) -> str:
    """The first token of `a` that `b` has not, in words; "" where they are equal."""
    at = first_difference(a, b)
    if at is None:
        return ""
    here = str(a[at]) if at < len(a) else "nothing"
    there = str(b[at]) if at < len(b) else "nothing"
    return f"token {at} (from 0) is {here}, {other} {there}"


def state_difference(a: State, b: State, other: str) -> str:
    """The first entry of `a` with other bits than `b` has, in words; "" where they are equal."""
    for name, theirs in b.items():
        mine = a[name]
        if mine.shape != theirs.shape:
            return f"{name}: shape {mine.shape}, {other} {theirs.shape}"
        if mine.dtype.kind == "f":  # by bits: -0 is not 0, and a NaN is itself
            bits = f"u{mine.dtype.itemsize}"
            unequal = mine.view(bits) != theirs.view(bits)
        else:
            unequal = mine != theirs
        if unequal.any():
            at = tuple(int(n) for n in np.argwhere(unequal)[0])
            return (
                f"{name}: {int(unequal.sum())} of {unequal.size} values differ, the first at "
                f"{list(at)}: {mine[at]}, {other} {theirs[at]}"
            )
    return ""


def replay_difference(a: ReplayRun, b: ReplayRun, other: str) -> str:
    """Where one replay differs from another: tokens, accepted drafts, state; "" where nowhere."""
    said = token_difference(a.tokens, b.tokens, other)
    if said:
        return said
    step = first_difference(a.accepted, b.accepted)
    if step is not None:
        return f"equal tokens, but drafts accepted in step {step} differ"
    return state_difference(a.state, b.state, other)


def distance(a: State, b: State) -> tuple[float, str]:
    """The largest difference of any array of `b`, over that array's largest entry; and its name.

    Infinite where shapes differ or a value is not finite.
    """
    worst, where = 0.0, ""
    for name, theirs in b.items():
        mine, other = a[name].astype(np.float64), theirs.astype(np.float64)
        finite = np.isfinite(mine).all() and np.isfinite(other).all()
        if mine.shape != other.shape or not finite:
            return float("inf"), name
        scale = max(float(np.abs(other).max()), float(np.finfo(np.float64).tiny))
        apart = float(np.abs(mine - other).max()) / scale
        if apart > worst:
            worst, where = apart, name
    return worst, where
