"""Pass pdl-chain: kernels begin while the one before ends."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry
from optimizations.switched import NEEDS, on


@dataclass(frozen=True, slots=True)
class PdlChain(PassEntry):
    """Programmatic dependent launch, as SGLang's kernels for this model have it.

    A kernel's prologue, and its loads of weights, run over the tail of the kernel before.
    """

    name: str = "pdl-chain"
    summary: str = "Launches kernels before the one before has ended: prologues overlap."
    addresses: tuple[Addresses, ...] = (Addresses("graph gap"),)
    targets: tuple[str, ...] = ("ling", "sglang")
    needs: tuple[str, ...] = NEEDS
    keeps_bits: bool = True
    rounds_on: tuple[str, ...] = ("ling",)
    gate: str = "256 greedy tokens, drafts accepted and state equal bit by bit"
    live: bool = True
    models: tuple[str, ...] = ("pdl:*",)

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is the switch "pdl"."""
        return on(target, "pdl")
