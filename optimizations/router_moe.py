"""Pass router-moe: gate, top-k and alignment in SGLang's small kernels."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry
from optimizations.switched import NEEDS, on


@dataclass(frozen=True, slots=True)
class RouterMoe(PassEntry):
    """What SGLang does for few tokens, in place of a library's product and torch's operators.

    The shared expert stays fused as expert 512 either way: its weights are laid out at the start.
    """

    name: str = "router-moe"
    summary: str = "Gate, grouped top-k and alignment of few tokens in three small kernels."
    addresses: tuple[Addresses, ...] = ()
    targets: tuple[str, ...] = ("ling", "sglang")
    needs: tuple[str, ...] = NEEDS
    keeps_bits: bool = False
    gate: str = "argmax flips counted, accepted drafts within 0.05"
    live: bool = True

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is the switch "router"."""
        return on(target, "router")
