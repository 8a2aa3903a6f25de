"""Variants of the embedded loop's model that tests put in its place, without a kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.model import Model, Mtp


class Shifted(Model):
    """Says the token after the one that the plain model says."""

    def __init__(self, plain: Model) -> None:
        self.__dict__.update(plain.__dict__)

    def logits(self, hidden: Tensor) -> Tensor:
        return super().logits(hidden).roll(1, -1)


class Fits:
    """Counts how often variants were made."""

    def __init__(self, shifted: bool) -> None:
        self.made: list[frozenset[str]] = []
        self._shifted = shifted

    def __call__(
        self, loop: Loop, names: frozenset[str], shared: dict[str, Any]
    ) -> tuple[Model, Mtp]:
        self.made.append(names)
        return Shifted(loop.model) if self._shifted else loop.model, loop.mtp
