"""Device operations that are faster, or that overlap."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bubblescope.errors import BubblescopeError
from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph
from bubblescope.predict.whatifs.base import matcher, nothing_fits, operation_names
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

LEAST, MOST = Fraction(1, 1000), 1_000_000
"""Factors of a speed-up. No kernel becomes faster or slower by more."""
MOST_PROLOGUE_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """Operations of a name run `factor` times as fast; a factor below one slows them.

    Of one that began before the operation before it had ended, what lies after that end is shorter:
    until then it waits.
    """

    pattern: str
    factor: Fraction

    def __post_init__(self) -> None:
        """Refuse a factor that means nothing."""
        if not LEAST <= self.factor <= MOST:
            raise BubblescopeError(f"{self.text}: the factor must be from {LEAST} to {MOST:,}")

    @property
    def text(self) -> str:
        """As it is written."""
        return f"speed-up:{self.pattern}={self.factor}"

    def apply(self, graph: Graph, edit: Edit) -> tuple[str, ...]:
        """Divide the durations, rounded down to whole ns."""
        ops = graph.timeline.device_ops
        chosen = ops.name.where(matcher(self.pattern))
        if not chosen.any():
            raise nothing_fits(self.text, "operation", operation_names(graph))
        edit.run[chosen] = self._shorter(edit.run[chosen])
        links = chosen[graph.queues.order]
        edit.tail[links] = self._shorter(edit.tail[links])
        return ()

    def _shorter(self, ns: Int) -> Int:
        factor = self.factor.limit_denominator(MOST)  # so that the product fits into int64
        return ns * factor.denominator // factor.numerator


@dataclass(frozen=True, slots=True)
class Pdl:
    """Kernels of a name begin before the kernel ahead of them on the stream has ended (PDL).

    The gap between the two goes, and of the kernel `prologue_ns`, which then lies over the tail of
    the other: what it can do without that one's results.
    """

    pattern: str = "*"
    prologue_ns: int = 0

    def __post_init__(self) -> None:
        """Refuse a prologue that means nothing."""
        if self.prologue_ns < 0:
            raise BubblescopeError(f"{self.text}: the prologue cannot be shorter than nothing")
        if self.prologue_ns > MOST_PROLOGUE_NS:
            raise BubblescopeError(f"{self.text}: the prologue cannot be longer than a second")

    @property
    def text(self) -> str:
        """As it is written."""
        us = f"={Fraction(self.prologue_ns, 1000)}" if self.prologue_ns else ""
        return f"pdl:{self.pattern}{us}"

    def apply(self, graph: Graph, edit: Edit) -> tuple[str, ...]:
        """Close the gaps between queued kernels, and take the prologues off."""
        kernel = graph.timeline.device_ops.kind.where(lambda kind: kind == "kernel")
        named = kernel & graph.timeline.device_ops.name.where(matcher(self.pattern))
        links = boundaries(graph, named, kernel)
        if not len(links):
            raise nothing_fits(self.text, "kernel right after a kernel", operation_names(graph))
        close(graph, edit, links, self.prologue_ns)
        return ()


def boundaries(graph: Graph, after: Mask, before: Mask) -> Int:
    """Links in `after` that follow one in `before` on their queue and do not overlap it yet."""
    queues = graph.queues
    order = queues.order
    last = queues.before[order]
    return np.flatnonzero(
        after[order] & (last >= 0) & before[np.maximum(last, 0)] & ~queues.overlaps[order]
    )


def close(graph: Graph, edit: Edit, links: Int, prologue_ns: int = 0) -> None:
    """Let these links begin when the one before ends, or by so much earlier."""
    edit.between[links] = 0
    if prologue_ns:
        op = graph.queues.order[links]
        hidden = np.minimum(prologue_ns, edit.run[op])
        edit.between[links] -= hidden
