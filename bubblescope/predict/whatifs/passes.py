"""What a pass says that it does, as one what-if."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bubblescope.errors import BubblescopeError
from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph
from bubblescope.predict.whatifs.base import WhatIf
from bubblescope.predict.whatifs.text import parse


@dataclass(frozen=True, slots=True)
class OfPass:
    """All that a pass declares: its models, together."""

    name: str
    models: tuple[WhatIf, ...]

    @classmethod
    def declared(cls, name: str, models: Sequence[str]) -> OfPass:
        """From what a pass declares.

        Raises:
            BubblescopeError: it declares nothing.
        """
        if not models:
            raise BubblescopeError(
                f"pass {name}: does not say what it does; say it yourself, as in "
                "--without read:FILE:LINE"
            )
        return cls(name, tuple(parse(text) for text in models))

    @property
    def text(self) -> str:
        """As it is written."""
        return f"pass:{self.name}"

    def apply(self, graph: Graph, edit: Edit) -> tuple[str, ...]:
        """Apply every model.

        Raises:
            BubblescopeError: one fits nothing.
        """
        try:
            return tuple(said for model in self.models for said in model.apply(graph, edit))
        except BubblescopeError as error:
            raise BubblescopeError(f"pass {self.name}: {error}") from None
