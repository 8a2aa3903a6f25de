"""What a comparison says: frozen data that reporters draw. A is before, B after; times in ns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bubblescope.diagnose.model import Finding, Part, ReadSite, median_ns
from bubblescope.timeline.tables import Int

RESOLUTION = 100
"""A time changed only if by more than one part in so many of what it was."""


@dataclass(frozen=True, slots=True)
class Middle:
    """A figure a step on one side: its median and the spread between steps.

    median: None without steps. spread: the distance between the quartiles, which are values
    themselves, the (n - 1) // 4-th from either end; None for fewer than two steps.
    """

    median: int | None
    spread: int | None

    @classmethod
    def of(cls, values: Int) -> Middle:
        """From the values of the steps that count."""
        steps = len(values)
        if steps < 2:
            return cls(median_ns(values), None)
        ordered, cut = np.sort(values), (steps - 1) // 4
        return cls(median_ns(values), int(ordered[steps - 1 - cut]) - int(ordered[cut]))


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure a step on both sides: medians over the steps that count.

    a, b: None where a side has no steps. spread: the wider of the two sides' spreads between
    steps, None where one has fewer than two. withheld: the two are not to be compared.
    """

    a: int | None
    b: int | None
    spread: int | None
    withheld: bool = False

    @classmethod
    def between(cls, a: Middle, b: Middle, *, withheld: bool = False) -> Figure:
        """Of both sides."""
        known = a.spread is not None and b.spread is not None
        wider = max(a.spread or 0, b.spread or 0) if known else None
        return cls(a.median, b.median, wider, withheld)

    @property
    def difference(self) -> int | None:
        """B less A; None where that is not known or withheld."""
        if self.a is None or self.b is None or self.withheld:
            return None
        return self.b - self.a

    @property
    def beyond(self) -> bool | None:
        """Whether the difference is larger than the spread between steps; None: not known."""
        if self.difference is None or self.spread is None:
            return None
        return abs(self.difference) > self.spread


class State(StrEnum):
    """What became of a thing from A to B."""

    APPEARED = "appeared"
    VANISHED = "vanished"
    CHANGED = "changed"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Change:
    """Everything of one name, on both sides.

    group: what kind of thing it is. count_a, count_b: in all. count: a step. ns_a, ns_b, ns: the
    sum of durations, in all and a step, each operation's in full; None for what nests.
    """

    group: str
    name: str
    count_a: int
    count_b: int
    count: Figure
    ns_a: int | None = None
    ns_b: int | None = None
    ns: Figure | None = None

    @property
    def state(self) -> State:
        """Changed: count or time differ by more than the spread between steps, time also by 1 %.

        Where there are no steps on a side, or too few to know a spread: other counts.
        """
        if not self.count_a or not self.count_b:
            return State.APPEARED if self.count_b else State.VANISHED
        if self.count.beyond is None:
            a, b = (
                (self.count_a, self.count_b)
                if self.count.difference is None
                else (self.count.a, self.count.b)
            )
            return State.CHANGED if a != b else State.SAME
        if self.count.beyond or (self.ns is not None and self.ns.beyond and self._noticeable()):
            return State.CHANGED
        return State.SAME

    def _noticeable(self) -> bool:
        difference, before = self.ns and self.ns.difference, self.ns and self.ns.a
        return abs(difference or 0) * RESOLUTION > (before or 0)

    @property
    def in_all(self) -> int:
        """How many more there are in B's recording than in A's."""
        return self.count_b - self.count_a


@dataclass(frozen=True, slots=True)
class ReadChange:
    """A read site of A and the same of B; None where it is not there."""

    a: ReadSite | None
    b: ReadSite | None


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding of A and the same of B; None where it is not there."""

    a: Finding | None
    b: Finding | None


class Verdict(StrEnum):
    """Whether both did the same work on the device."""

    UNCHANGED = "unchanged"
    NEARLY = "unchanged but for"
    CHANGED = "changed"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Whether the device did the same work each step.

    differing: families whose count a step differs. differing_ns: their difference in time a step,
    each taken positive. why: of a verdict that is not known.
    """

    verdict: Verdict
    differing: tuple[Change, ...] = ()
    differing_ns: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """One recording, in short. steps: how many count. in all: over the window, all devices."""

    source: str
    run: str
    capture: str
    level: str
    devices: tuple[str, ...]
    marker: str
    steps: int
    window_ns: int
    busy_ns: int
    idle_ns: int
    unknown_ns: int
    unprofiled_step_ns: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A.

    step, busy, idle, overlapped, parts: a step; idle is all parts but the unknown. kinds: device
    operations by kind. families: kernels by family, copies and sets by name; neither where levels
    or devices differ. calls: CUDA calls by name. ops: framework ops by name. notes: what is not
    compared, and why.
    """

    a: Side
    b: Side
    step: Figure
    busy: Figure
    idle: Figure
    overlapped: Figure
    parts: dict[Part, Figure]
    kinds: tuple[Change, ...]
    families: tuple[Change, ...]
    calls: tuple[Change, ...]
    ops: tuple[Change, ...]
    reads: tuple[ReadChange, ...]
    findings: tuple[FindingChange, ...]
    device_work: DeviceWork
    notes: tuple[str, ...]
