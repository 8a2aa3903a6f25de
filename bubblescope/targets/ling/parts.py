"""The hook point of passes that replace parts of the model, and what it needs of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from bubblescope.targets.gated import NotOffered
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.mla import Mla
from bubblescope.targets.ling.model import Layer, Model, Mtp

Fit = Callable[[Loop, frozenset[str], dict[str, Any]], tuple[Model, Mtp]]
"""Makes a model and a draft head with the parts of these names replaced.

They have the weights and buffers of the loop's own. The last argument is kept as long as the loop:
what every variant needs is put there once.
"""


class Parts:
    """Which parts passes want replaced; none: the model is plain.

    refused: why no part can be replaced here; None where it can.
    """

    def __init__(self, refused: str | None = None) -> None:
        self._refused = refused
        self._wanted: list[tuple[str, Fit]] = []

    def check(self) -> None:
        """Raise where no part can be replaced.

        Raises:
            NotOffered: it says why.
        """
        if self._refused is not None:
            raise NotOffered(self._refused)

    @contextmanager
    def replaced(self, names: frozenset[str], fit: Fit) -> Iterator[None]:
        """Replaced until this exits; what several passes want is handed to one `fit` at once.

        It holds from the next step on. Stages are captured anew where they were not yet.

        Raises:
            NotOffered: no part can be replaced here.
        """
        self.check()
        mine = [(name, fit) for name in names]
        self._wanted += mine
        try:
            yield
        finally:
            for each in mine:
                self._wanted.remove(each)

    @property
    def names(self) -> frozenset[str]:
        """Of the parts that are replaced now."""
        return frozenset(name for name, _ in self._wanted)

    def made(self, loop: Loop, shared: dict[str, Any]) -> tuple[Model, Mtp]:
        """Model and draft head of a loop, which are its own where nothing is replaced."""
        if not self._wanted:
            return loop.model, loop.mtp
        fit = self._wanted[0][1]
        return fit(loop, self.names, shared)


def kept(loop: Loop) -> list[Tensor]:
    """Every tensor that stages change and later stages read."""
    found = [loop.length, loop.token, loop.drafts, loop.plan, loop.table, loop.accepted]
    found += [loop.result, *loop.private()]
    layers: list[Layer] = [*loop.model.layers, loop.mtp.layer]
    for layer in layers:
        a = layer.attention
        if isinstance(a, Mla):
            found.append(a.cache)
        else:
            found += [a.state, a.history, a.staged_state, a.staged_history]
    return found
