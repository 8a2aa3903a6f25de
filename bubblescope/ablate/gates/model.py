"""What a gate says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """Failed: the passes are wrong. Not tested: nothing is known, and the detail says why."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate of one set of passes.

    gate: its name. detail: one line, with the figures or the reason. numbers: the same figures, by
    name; times in ns.
    """

    gate: str
    verdict: Verdict
    detail: str
    numbers: Mapping[str, float] = field(default_factory=dict)
