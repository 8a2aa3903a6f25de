"""Pass glue-graph: attention metadata prepared by a captured graph."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry
from optimizations.switched import on


@dataclass(frozen=True, slots=True)
class GlueGraph(PassEntry):
    """SGLang ships it off: `SGLANG_ENABLE_METADATA_GLUE_GRAPH`."""

    name: str = "glue-graph"
    summary: str = "Captures the small kernels that prepare attention metadata between stages."
    addresses: tuple[Addresses, ...] = ()
    targets: tuple[str, ...] = ("sglang",)
    needs: tuple[str, ...] = ("SGLang 0.5.23 or later on Hopper or Blackwell",)
    keeps_bits: bool = True
    gate: str = "256 greedy tokens, drafts accepted and state equal bit by bit"
    live: bool = True

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is the switch "glue graph"."""
        return on(target, "glue graph")
