"""Pass staged-kda: KDA's verification in one kernel, states staged."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry
from optimizations.switched import NEEDS, on


@dataclass(frozen=True, slots=True)
class StagedKda(PassEntry):
    """Convolution, gates and recurrence of all draft positions in one kernel.

    SGLang stages a state for each position, and commits that of the accepted one, with this pass
    and without: nothing unstaged was ever shipped.
    """

    name: str = "staged-kda"
    summary: str = "Verifies all draft positions of a KDA layer in one kernel."
    addresses: tuple[Addresses, ...] = ()
    targets: tuple[str, ...] = ("ling", "sglang")
    needs: tuple[str, ...] = NEEDS
    keeps_bits: bool = True
    rounds_on: tuple[str, ...] = ("ling",)
    gate: str = "256 greedy tokens, drafts accepted and state equal bit by bit"
    live: bool = True

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is the switch "fused KDA verify"."""
        return on(target, "fused KDA verify")
