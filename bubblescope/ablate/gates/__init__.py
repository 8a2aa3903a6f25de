"""Gates of correctness: what a set of passes must show before its row counts. See docs/gates.md."""

from bubblescope.ablate.gates.checks import Gates, check
from bubblescope.ablate.gates.model import GateResult, Verdict

__all__ = ["GateResult", "Gates", "Verdict", "check"]
