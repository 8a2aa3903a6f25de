"""Pass bf16-lm-head: the vocabulary's weights in bf16."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry
from optimizations.switched import NEEDS, on


@dataclass(frozen=True, slots=True)
class Bf16LmHead(PassEntry):
    """As SGLang has it since it found the product in fp32 slow on Hopper."""

    name: str = "bf16-lm-head"
    summary: str = "Reads the vocabulary's weights in bf16; logits are sampled in fp32."
    addresses: tuple[Addresses, ...] = ()
    targets: tuple[str, ...] = ("ling", "sglang")
    needs: tuple[str, ...] = NEEDS
    keeps_bits: bool = False
    gate: str = "argmax flips counted, accepted drafts within 0.05"
    live: bool = True

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is the switch "bf16 lm_head"."""
        return on(target, "bf16 lm_head")
