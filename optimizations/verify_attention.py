"""Pass verify-attention: the context of the verify attention split over programs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry
from optimizations.switched import on


@dataclass(frozen=True, slots=True)
class VerifyAttention(PassEntry):
    """A kernel of our own, `kernels.verify_attention`, in place of SGLang's kernel for prompts.

    That walks the context with one program a head; it was the longest kernel of a verify step.
    """

    name: str = "verify-attention"
    summary: str = "Splits the context of the drafts' attention over programs (our own kernel)."
    addresses: tuple[Addresses, ...] = ()
    targets: tuple[str, ...] = ("sglang",)
    needs: tuple[str, ...] = (
        "SGLang 0.5.23 or later on Hopper or Blackwell",
        "attention_backend=triton",
    )
    keeps_bits: bool = False
    gate: str = "argmax flips counted, accepted drafts within 0.05"
    live: bool = True

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is the switch "split verify attention"."""
        return on(target, "split verify attention")
