"""The Timeline: everything that a recording says, in tables."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np

from bubblescope.timeline.meta import Meta
from bubblescope.timeline.tables import (
    DeviceOps,
    Frames,
    Health,
    HostCalls,
    Ranges,
    Steps,
    Table,
)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """A recording of host threads and devices, in int64 nanoseconds on one clock.

    Make one with `Timeline.of`, which brings the rows into their one order, so that a diagnosis
    never depends on the order in which a file happened to list them.
    """

    meta: Meta
    device_ops: DeviceOps = field(default_factory=DeviceOps.empty)
    host_calls: HostCalls = field(default_factory=HostCalls.empty)
    ranges: Ranges = field(default_factory=Ranges.empty)
    frames: Frames = field(default_factory=Frames.empty)
    steps: Steps = field(default_factory=Steps.empty)
    health: Health = field(default_factory=Health.empty)

    @classmethod
    def of(cls, meta: Meta, **tables: Table) -> Self:
        """A Timeline with its rows in canonical order.

        Device operations by (rank, device, start, stream, correlation, node, end); host calls and
        ranges by (rank, process, thread, start), the enclosing one of two that start together
        first; steps by (rank, process, start).
        """
        made = cls(meta, **tables)  # type: ignore[arg-type]
        ops, calls, ranges, steps = made.device_ops, made.host_calls, made.ranges, made.steps
        return cls(
            meta,
            ops.take(
                _order(
                    ops.rank, ops.device, ops.start, ops.stream, ops.correlation, ops.node, ops.end
                )
            ),
            calls.take(_order(calls.rank, calls.process, calls.thread, calls.start, -calls.end)),
            ranges.take(
                _order(ranges.rank, ranges.process, ranges.thread, ranges.start, -ranges.end)
            ),
            made.frames,
            steps.take(_order(steps.rank, steps.process, steps.start)),
            made.health,
        )

    def tables(self) -> dict[str, Table]:
        """Every table by its name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "meta"}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        return self.meta == other.meta and self.tables() == other.tables()

    __hash__ = None  # type: ignore[assignment]


def _order(*keys: np.ndarray) -> np.ndarray:
    """Stable order by the first key, ties by the next; free where rows are already in order."""
    constant = [k for k in keys if len(k) and (k != k[0]).any()]
    if not constant:
        return np.arange(len(keys[0]))
    if len(constant) == 1:
        return np.argsort(constant[0], kind="stable")
    return np.lexsort(constant[::-1])
