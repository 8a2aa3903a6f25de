"""Whether the device did the same work each step."""

from __future__ import annotations

from collections.abc import Sequence

from bubblescope.compare.model import Change, DeviceWork, Figure, Verdict

SMALL = 100
"""Families that differ are a remainder if their time is at most one part in so many."""


def judge(families: Sequence[Change], busy: Figure, why_not: str) -> DeviceWork:
    """The verdict on the work of a step.

    Unchanged: each family runs as often a step, and busy differs by no more than its spread
    between steps. Unchanged but for: busy does not, and the families that run more or less often
    differ by at most a hundredth of the time of all operations of A. Else changed.

    Args:
        families: every family of either side.
        busy: busy time a step.
        why_not: why device operations or busy cannot be compared, "" where they can.
    """
    if why_not:
        return DeviceWork(Verdict.NOT_KNOWN, why=why_not)
    if busy.beyond is None:
        why = "the spread between steps is not known on both sides"
        return DeviceWork(Verdict.NOT_KNOWN, why=why)
    differing = tuple(c for c in families if c.count.difference)
    moved = sum(abs(c.ns.difference or 0) for c in differing if c.ns is not None)
    total = sum(c.ns.a or 0 for c in families if c.ns is not None)
    if busy.beyond or SMALL * moved > total:
        return DeviceWork(Verdict.CHANGED, differing, moved)
    verdict = Verdict.NEARLY if differing else Verdict.UNCHANGED
    return DeviceWork(verdict, differing, moved)
