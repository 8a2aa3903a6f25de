"""Pass bf16-heads: router gates and vocabulary in bf16, both of these passes at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from optimizations.bf16_gate import Bf16Gate
from optimizations.bf16_lm_head import Bf16LmHead
from optimizations.passes import Addresses, PassEntry
from optimizations.switched import NEEDS


@dataclass(frozen=True, slots=True)
class Bf16Heads(PassEntry):
    """The blog's pair; each alone is a pass of its own."""

    name: str = "bf16-heads"
    summary: str = "bf16-gate and bf16-lm-head at once."
    targets: tuple[str, ...] = ("ling", "sglang")
    addresses: tuple[Addresses, ...] = ()
    needs: tuple[str, ...] = NEEDS
    keeps_bits: bool = False
    parts: tuple[str, ...] = ("bf16-gate", "bf16-lm-head")
    gate: str = "argmax flips counted, accepted drafts within 0.05"
    live: bool = True

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hooks of both."""
        return _both(target)


@contextmanager
def _both(target: Any) -> Iterator[None]:
    with Bf16Gate().applied(target), Bf16LmHead().applied(target):
        yield
