"""What a what-if changes: the figures of a graph, apart from its structure."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int


@dataclass(frozen=True, slots=True, eq=False)
class Edit:
    """The figures, ns, in arrays that are this edit's own and may be changed.

    Of spans: `gap` before each, and how long each `call` takes. Of waits: what the call takes by
    its `own`, how long after the work it is `back`, and whether it `waits`. Of operations: how long
    each may `run`, and which are `gone`. Of links: the `tail` after the link before, the gap
    `between` the two. Of launch edges: `latency`, and whether it `launches`. Of crossings: the
    `crossing` lag, and whether it `crosses`. `gone_calls`: rows of `host_calls` that are not made.
    """

    gap: Int
    call: Int
    own: Int
    back: Int
    waits: Mask
    run: Int
    tail: Int
    between: Int
    latency: Int
    launches: Mask
    crossing: Int
    crosses: Mask
    gone: Mask
    gone_calls: Mask

    def copy(self) -> Edit:
        """The same figures in arrays of their own."""
        return Edit(*(np.copy(getattr(self, f.name)) for f in fields(self)))
