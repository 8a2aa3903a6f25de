"""What a check says, a line a limit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from bubblescope.compare.run import Run
from bubblescope.diagnose.model import Site


class Unit(StrEnum):
    """What the figures of a line are."""

    COUNT = "count"
    NS = "ns"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class Culprit:
    """What a limit was exceeded by, and where.

    what: the call, or what was found. source: the line of `site` as it is on this machine, ""
    where it is not here. calls, blocked_ns, idle_ns: a step where there are steps, else in all;
    None where they do not apply.
    """

    what: str
    site: Site | None
    source: str
    per_step: bool
    calls: float | None = None
    blocked_ns: int | None = None
    idle_ns: int | None = None


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One limit and what was measured.

    measured: None where it cannot be told, which counts as failed; `note` then says why. where:
    of a line that failed, the worst first.
    """

    name: str
    unit: Unit
    measured: Fraction | None
    limit: Fraction
    passed: bool
    note: str = ""
    where: tuple[Culprit, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """A run that must not be worse than before, by more than `tolerance` (0.05: 5 %)."""

    name: str
    run: Run
    tolerance: Fraction
