"""The tables of a Timeline. Times are int64 nanoseconds; -1 in an id column is "not recorded"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bubblescope.timeline.coded import Coded

Int = npt.NDArray[np.int64]
"""An int64 column, shape (rows,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of equal length: int64 arrays and dictionary-coded strings."""

    @classmethod
    def coded_columns(cls) -> frozenset[str]:
        """Names of the string columns; every other column is int64."""
        hints = get_type_hints(cls)
        return frozenset(f.name for f in fields(cls) if hints[f.name] is Coded)

    @classmethod
    def build(cls, rows: int | None = None, **columns: Any) -> Self:
        """A table from arrays, lists or single values; columns not given are "not recorded".

        `rows` is needed only where every column given is a single value.
        """
        coded = cls.coded_columns()
        if rows is None:
            rows = next((len(v) for v in columns.values() if not isinstance(v, int | str)), 0)
        made: dict[str, Any] = {}
        for f in fields(cls):
            value = columns.pop(f.name, "" if f.name in coded else -1)
            if f.name in coded:
                if isinstance(value, str):
                    value = Coded.constant(value, rows)
                made[f.name] = value if isinstance(value, Coded) else Coded.of(value)
            elif isinstance(value, int):
                made[f.name] = np.full(rows, value, np.int64)
            else:
                made[f.name] = np.ascontiguousarray(value, np.int64)
        if columns:
            raise TypeError(f"{cls.__name__} has no column {', '.join(columns)}")
        table = cls(**made)
        lengths = {f.name: len(getattr(table, f.name)) for f in fields(cls)}
        if set(lengths.values()) - {rows}:
            raise ValueError(f"columns of {cls.__name__} differ in length: {lengths}")
        return table

    @classmethod
    def empty(cls) -> Self:
        """No rows."""
        return cls.build(0)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Rows of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        coded = cls.coded_columns()
        columns = {f.name: [getattr(p, f.name) for p in parts] for f in fields(cls)}
        return cls(
            **{
                n: Coded.concat(c)
                if n in coded
                else (np.concatenate(c) if c else np.zeros(0, np.int64))
                for n, c in columns.items()
            }
        )

    @classmethod
    def from_arrow(cls, table: pa.Table) -> Self:
        """From Arrow; columns that an older file lacks become "not recorded"."""
        coded = cls.coded_columns()
        return cls.build(
            table.num_rows,
            **{
                f.name: Coded.from_arrow(table[f.name])
                if f.name in coded
                else table[f.name].to_numpy()
                for f in fields(cls)
                if f.name in table.column_names
            },
        )

    def to_arrow(self) -> pa.Table:
        """As an Arrow table: int64 and dictionary<string> columns."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return pa.table(
            {n: c.to_arrow() if isinstance(c, Coded) else pa.array(c) for n, c in columns.items()}
        )

    def take(self, rows: npt.NDArray[Any] | slice) -> Self:
        """The chosen rows: indices, mask or slice."""
        return type(self)(
            **{
                f.name: c.take(rows) if isinstance(c, Coded) else c[rows]
                for f in fields(self)
                for c in [getattr(self, f.name)]
            }
        )

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            if isinstance(mine, Coded):
                if mine != theirs:
                    return False
            elif not np.array_equal(mine, theirs):
                return False
        return True

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceOps(Table):
    """Device operations: what counts as busy. Annotations and sync rows are not here.

    kind: "kernel", "memcpy", "memset" or "graph" (a replay recorded whole).
    process: the host process whose launch it was, so that correlation ids never collide.
    graph, node: ids as the tool gave them; most Kineto files give neither.
    grid, block: of a kernel, "x,y,z".
    collective, group, sequence: of a collective, what the framework called it, the communicator
    with its ranks ("0 [0, 1]"), and its number in it, as far as these were recorded.
    """

    rank: Int
    process: Int
    device: Int
    stream: Int
    kind: Coded
    name: Coded
    start: Int
    end: Int
    correlation: Int
    graph: Int
    node: Int
    bytes: Int
    grid: Coded
    block: Coded
    collective: Coded
    group: Coded
    sequence: Int


@dataclass(frozen=True, slots=True, eq=False)
class HostCalls(Table):
    """CUDA or HIP calls on host threads.

    frame: row of `frames`, the call site.
    status: what the call returned (0 success, 600 not ready), where recorded.
    sync: what a sync row said of the call: "stream", "event", "context", "stream wait" or "".
    stream: the stream that the call synchronises with, or that waits.
    event_stream, event_record: where and by which call (correlation id) the event was recorded
    that this call waits for.
    """

    rank: Int
    process: Int
    thread: Int
    name: Coded
    start: Int
    end: Int
    correlation: Int
    frame: Int
    status: Int
    sync: Coded
    stream: Int
    event_stream: Int
    event_record: Int


@dataclass(frozen=True, slots=True, eq=False)
class Ranges(Table):
    """Spans on host threads that are not CUDA calls.

    kind: "annotation" (NVTX, record_function), "op" (framework operator), "python" (a frame), "os"
    (a call of the operating system) or "overhead" (the profiler's own work; thread is often -1).
    """

    rank: Int
    process: Int
    thread: Int
    kind: Coded
    name: Coded
    start: Int
    end: Int
    frame: Int


@dataclass(frozen=True, slots=True, eq=False)
class Frames(Table):
    """Call sites, each kept once. line is 1-based; in Kineto files it is the function's first."""

    file: Coded
    line: Int
    function: Coded


@dataclass(frozen=True, slots=True, eq=False)
class Steps(Table):
    """Step marks that the recording itself carries (ProfilerStep, our own capture): host times."""

    rank: Int
    process: Int
    number: Int
    start: Int
    end: Int


@dataclass(frozen=True, slots=True, eq=False)
class Health(Table):
    """What was dropped, repaired, missing or skewed, and how many."""

    rank: Int
    kind: Coded
    count: Int
    note: Coded
