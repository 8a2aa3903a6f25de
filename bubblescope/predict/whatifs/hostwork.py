"""Host work that the launching thread does not do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.names import merged
from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph
from bubblescope.predict.hostedit import cut_host, important
from bubblescope.predict.whatifs.base import matcher, nothing_fits


@dataclass(frozen=True, slots=True)
class OffPath:
    """Work of the host is done off the path: in another thread, or not at all.

    pattern: of a range's name: what the thread does in it goes, but for calls that launch, copy or
    wait; or of a CUDA call's: it takes no time, and still does what it does.
    """

    pattern: str

    @property
    def text(self) -> str:
        """As it is written."""
        return f"host:{self.pattern}"

    def apply(self, graph: Graph, edit: Edit) -> tuple[str, ...]:
        """Take the time out."""
        fits = matcher(self.pattern)
        ranges, calls = graph.timeline.ranges, graph.timeline.host_calls
        joined = merged(ranges)
        in_range = ranges.name.where(fits) | joined.where(fits)
        in_call = calls.name.where(fits)
        if not in_range.any() and not in_call.any():
            known = [joined.values[c] for c in np.unique(joined.codes).tolist()]
            raise nothing_fits(self.text, "host work", [*known, *calls.name.values])
        spans = graph.spans
        free = np.zeros(len(spans.begin), np.bool_)
        free[spans.of_call[in_call]] = True
        matters = np.zeros(len(spans.begin), np.bool_)
        matters[spans.of_call[important(graph)]] = True
        for thread in np.unique(spans.thread).tolist():
            rows = graph.threads.ranges(thread)
            chosen = np.flatnonzero(in_range[rows]) + rows.start
            if not len(chosen):
                continue
            start, end = ranges.start[chosen], ranges.end[chosen]
            cut_host(graph, edit, thread, start, end)
            mine = np.flatnonzero((spans.thread == thread) & ~matters)
            begun = np.searchsorted(np.sort(start), spans.begin[mine], "right")
            ended = np.searchsorted(np.sort(end), spans.begin[mine], "right")
            free[mine[begun > ended]] = True
        edit.call[free] = 0
        edit.own[free[graph.waits.span]] = 0
        return ()
