"""Pass draft-extend-graph: the draft model's extend stage as one captured graph."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry
from optimizations.switched import on


@dataclass(frozen=True, slots=True)
class DraftExtendGraph(PassEntry):
    """Three captured graphs a step in place of two and some hundred launches."""

    name: str = "draft-extend-graph"
    summary: str = "Captures the draft-extend stage, which otherwise is launched kernel by kernel."
    addresses: tuple[Addresses, ...] = ()
    targets: tuple[str, ...] = ("sglang",)
    needs: tuple[str, ...] = ("SGLang 0.5.23 or later on Hopper or Blackwell",)
    keeps_bits: bool = True
    gate: str = "256 greedy tokens, drafts accepted and state equal bit by bit"
    live: bool = True
    models: tuple[str, ...] = ("capture:extend",)

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is the switch "draft-extend graph"."""
        return on(target, "draft-extend graph")
