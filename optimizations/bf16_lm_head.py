"""Pass bf16-lm-head: the vocabulary's weights in bf16."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry


@dataclass(frozen=True, slots=True)
class Bf16LmHead(PassEntry):
    """As SGLang has it since it found the product in fp32 slow on Hopper."""

    name: str = "bf16-lm-head"
    summary: str = "Reads the vocabulary's weights in bf16; logits are sampled in fp32."
    addresses: tuple[Addresses, ...] = ()
    targets: tuple[str, ...] = ("sglang",)
    needs: tuple[str, ...] = ("SGLang 0.5.23 or later on Hopper or Blackwell",)
    keeps_bits: bool = False
    gate: str = "argmax flips counted, accepted drafts within 0.05"
    live: bool = True

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is the target's switch "bf16 lm_head"."""
        on: AbstractContextManager[None] = target.switches["bf16 lm_head"].on()
        return on
