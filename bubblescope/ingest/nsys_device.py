"""Device operations of an Nsight Systems export: kernels, copies, sets and whole graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bubblescope.ingest.codes import coded
from bubblescope.ingest.nsys_places import Places, paired, process_part
from bubblescope.ingest.nsys_strings import Strings, labels
from bubblescope.ingest.nsys_times import plausible
from bubblescope.ingest.sqlite import NULL, Database
from bubblescope.timeline import Coded, DeviceOps
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.shapes import shape
from bubblescope.timeline.tables import Int

KERNEL, MEMCPY, MEMSET, GRAPH = (
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
)
TABLES = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset", GRAPH: "graph"}
"""The tables of device operations, and the kind of operation in each."""

_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_OWN = {
    KERNEL: (
        "demangledName|shortName|mangledName|name",
        "graphId",
        "graphNodeId",
        *(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"),
    ),
    MEMCPY: ("bytes", "graphId", "graphNodeId", "copyKind", "srcKind", "dstKind"),
    MEMSET: ("bytes", "graphId", "graphNodeId", "memKind"),
    GRAPH: ("graphId|graphExecId",),
}
_GRAPH_OF_NODE = 32
"""A node's id has that of its graph in the upper half: newer exports say the graph apart too."""

# What the numbers mean where the export lacks the tables that say so.
_DIRECTION = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA"}
_DIRECTION |= {8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD"}
_MIGRATES = 11
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
_MEMORY |= {5: "Device Static", 6: "Managed Static"}


@dataclass(frozen=True, slots=True, eq=False)
class Operations:
    """Device operations before it is known which rank and GPU they belong to.

    table: device is the CUDA device as its process numbers it. part: the process part of the
    global id, NULL where that is not recorded. good: which rows have times that can be true.
    """

    table: DeviceOps
    part: Int
    good: Mask

    def owned(self, part: Int, correlation: Int) -> Operations:
        """With the process of the call that has the operation's correlation id, where that is one.

        Args:
            part: The process part of each host call.
            correlation: The correlation id of each host call.
        """
        missing = np.flatnonzero(self.part == NULL)
        owners = np.unique(part[part != NULL])
        if not len(missing) or not len(owners):
            return self
        known = self.part.copy()
        known[missing] = owners[0]
        if len(owners) > 1:
            row = np.unique(paired(part, correlation), return_index=True)[1]
            ids, first, count = np.unique(correlation[row], return_index=True, return_counts=True)
            wanted = self.table.correlation[missing]
            at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
            one = (ids[at] == wanted) & (count[at] == 1)
            known[missing] = np.where(one, part[row[first[at]]], NULL)
        return Operations(self.table, known, self.good)

    def placed(self, places: Places) -> DeviceOps:
        """The operations with usable times, each with its rank, process and GPU."""
        table, part = self.table.take(self.good), self.part[self.good]
        process = places.processes(part)
        return replace(
            table,
            rank=places.ranks(part),
            process=process,
            device=places.devices(process, table.device),
        )


def read(database: Database, strings: Strings) -> Operations:
    """All operations of the export, those of one table after those of the other."""
    parts, owners = [], []
    for table, kind in TABLES.items():
        if table not in database:
            continue
        columns = database.integers(table, *_COMMON, *_OWN[table])
        start, end, device, stream, correlation, owner = columns[: len(_COMMON)]
        names, more = _NAMES[table](database, strings, *columns[len(_COMMON) :])
        parts.append(
            DeviceOps.build(
                len(start),
                device=device,
                stream=_id(stream),
                kind=kind,
                name=names,
                start=start,
                end=end,
                correlation=_id(correlation),
                **more,
            )
        )
        owners.append(process_part(owner))
    if not parts:
        return Operations(DeviceOps.empty(), np.zeros(0, np.int64), np.zeros(0, np.bool_))
    made = DeviceOps.concat(parts)
    # What CUPTI could not time begins at zero; nothing runs as the session begins.
    good = plausible(made.start, made.end) & (made.start != 0)
    return Operations(made, np.concatenate(owners), good)


def _kernels(
    _: Database, strings: Strings, name: Int, graph: Int, node: Int, *sizes: Int
) -> tuple[Coded, dict[str, Int | Coded]]:
    shapes = {"grid": shape(*sizes[:3]), "block": shape(*sizes[3:])}
    return strings.column(name, "kernel without a name"), {**_graph(graph, node), **shapes}


def _copies(
    database: Database, _: Strings, size: Int, graph: Int, node: Int, *what: Int
) -> tuple[Coded, dict[str, Int]]:
    """Named as torch.profiler names them: "Memcpy DtoH (Device -> Pinned)"."""
    memory = _MEMORY | labels(database, "ENUM_CUDA_MEM_KIND")
    kinds, code = np.unique(np.stack(what, axis=1), axis=0, return_inverse=True)
    names = [
        f"Memcpy {_DIRECTION.get(d, 'unknown')} ("
        + ("Unified memory)" if d >= _MIGRATES else f"{_side(memory, s)} -> {_side(memory, t)})")
        for d, s, t in kinds.tolist()
    ]
    return coded(code.reshape(-1), names), {"bytes": _id(size), **_graph(graph, node)}


def _sets(
    database: Database, _: Strings, size: Int, graph: Int, node: Int, kind: Int
) -> tuple[Coded, dict[str, Int]]:
    memory = _MEMORY | labels(database, "ENUM_CUDA_MEM_KIND")
    kinds, code = np.unique(kind, return_inverse=True)
    names = [f"Memset ({memory.get(k, 'Device')})" for k in kinds.tolist()]
    return coded(code.reshape(-1), names), {"bytes": _id(size), **_graph(graph, node)}


def _graphs(_: Database, __: Strings, graph: Int) -> tuple[Coded, dict[str, Int]]:
    ids, code = np.unique(_id(graph), return_inverse=True)
    names = [f"graph {i}" if i >= 0 else "graph" for i in ids.tolist()]
    return coded(code.reshape(-1), names), {"graph": _id(graph)}


_NAMES: dict[str, Callable[..., tuple[Coded, dict[str, Any]]]] = {
    KERNEL: _kernels,
    MEMCPY: _copies,
    MEMSET: _sets,
    GRAPH: _graphs,
}
"""What makes names and the columns that are a kind's own, of the columns in _OWN."""


def _side(memory: dict[int, str], kind: int) -> str:
    return memory.get(kind, "Unknown")


def _id(values: Int) -> Int:
    """A column of ids, -1 where nothing or CUPTI's own "none" is recorded."""
    return np.where((values == NULL) | (values == 2**32 - 1), -1, values)


def _graph(graph: Int, node: Int) -> dict[str, Int]:
    """Graph and node of operations in a replay; 0 is "in none"."""
    stated = np.where(graph > 0, graph, np.where(node > 0, node >> _GRAPH_OF_NODE, -1))
    return {"graph": np.where(stated > 0, stated, -1), "node": np.where(node > 0, node, -1)}
