"""The Timeline: everything that a recording says, in tables."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self, TypeVar

import numpy as np

from bubblescope.timeline.meta import Meta
from bubblescope.timeline.tables import (
    DeviceOps,
    Frames,
    Health,
    HostCalls,
    Int,
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
        ordered = {name: in_order(table) for name, table in tables.items()}
        return cls(meta, **ordered)  # type: ignore[arg-type]

    def tables(self) -> dict[str, Table]:
        """Every table by its name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "meta"}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        return self.meta == other.meta and self.tables() == other.tables()

    __hash__ = None  # type: ignore[assignment]


_Any = TypeVar("_Any", bound=Table)


def in_order(table: _Any) -> _Any:
    """The rows in canonical order; the table itself where they are so already."""
    keys = _keys(table)
    if not keys or _are_in_order(keys):
        return table
    varying = [k for k in keys if (k != k[0]).any()]
    if len(varying) == 1:
        return table.take(np.argsort(varying[0], kind="stable"))
    return table.take(np.lexsort(varying[::-1]))


def _keys(table: Table) -> tuple[Int, ...]:
    """What the rows are ordered by, the first key first; nothing where any order will do."""
    match table:
        case DeviceOps() as t:
            return t.rank, t.device, t.start, t.stream, t.correlation, t.node, t.end
        case HostCalls() | Ranges() as t:
            return t.rank, t.process, t.thread, t.start, -t.end
        case Steps() as t:
            return t.rank, t.process, t.start
    return ()


def _are_in_order(keys: tuple[Int, ...]) -> bool:
    tied = np.ones(max(0, len(keys[0]) - 1), np.bool_)
    for key in keys:
        before, after = key[:-1], key[1:]
        if (tied & (after < before)).any():
            return False
        tied &= after == before
        if not tied.any():
            break
    return True
