"""Pass bf16-gate: the router gates' weights in bf16."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry
from optimizations.switched import NEEDS, on


@dataclass(frozen=True, slots=True)
class Bf16Gate(PassEntry):
    """As SGLang 0.5.19 to 0.5.22 had it; 0.5.23 follows the model's configuration: fp32."""

    name: str = "bf16-gate"
    summary: str = "Reads the router gates' weights in bf16, and adds up in fp32."
    addresses: tuple[Addresses, ...] = ()
    targets: tuple[str, ...] = ("ling", "sglang")
    needs: tuple[str, ...] = NEEDS
    keeps_bits: bool = False
    gate: str = "argmax flips counted, accepted drafts within 0.05"
    live: bool = True

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is the switch "bf16 gate"."""
        return on(target, "bf16 gate")
