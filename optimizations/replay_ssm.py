"""Pass replay-ssm: the drafts' linear states replayed from raw inputs, in place of copies."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry


@dataclass(frozen=True, slots=True)
class ReplaySsm(PassEntry):
    """A verify keeps what a linear layer was given, not the state after each draft.

    What was accepted is applied to the state afterwards, by one kernel for all layers. That divides
    a key by its norm where the verify multiplies by the inverse: the state is rounded otherwise.
    """

    name: str = "replay-ssm"
    summary: str = "Keeps raw inputs of each draft, and replays those accepted into the state."
    addresses: tuple[Addresses, ...] = ()
    targets: tuple[str, ...] = ("sglang",)
    needs: tuple[str, ...] = (
        "SGLang 0.5.23 or later on Hopper or Blackwell",
        "a restart of the engine",
        "speculation in a chain (speculative_eagle_topk=1), linear_attn_backend=triton",
    )
    keeps_bits: bool = False
    gate: str = "argmax flips counted, accepted drafts within 0.05"
    live: bool = False

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is the switch "linear-state replay", an argument that the engine starts with."""
        made: AbstractContextManager[None] = target.at_start("linear-state replay")
        return made
