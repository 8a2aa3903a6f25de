"""Nsight Systems exports with known truth: a Timeline's rows, written with plain sqlite3.

tables = export(trace.timeline())       # {table: [row, ...]}, to be changed as a test likes
path = write(tmp_path / "a.sqlite", tables)
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

from bubblescope.timeline import Coded, Table, Timeline

Row = dict[str, Any]
Tables = dict[str, list[Row]]

HOST = 1 << 48
NO_ID = 2**32 - 1
HANDLE = 77
"""The one handle that all events have here, as they do where a program uses one again."""

KERNEL, MEMCPY, MEMSET, GRAPH, RUNTIME, DRIVER, SYNC, EVENT = (
    f"CUPTI_ACTIVITY_KIND_{kind}"
    for kind in (
        *("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"),
        *("RUNTIME", "DRIVER", "SYNCHRONIZATION", "CUDA_EVENT"),
    )
)
SYNC_TYPE = {"event": 1, "stream wait": 2, "stream": 3, "context": 4}
DIRECTION = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2}
_COPY = re.compile(r"Memcpy (\w+) \((\w*) -> (\w*)\)")


def pid(process: int, host: int = HOST) -> int:
    """The global id of a process."""
    return host + (process << 24)


def tid(process: int, thread: int, host: int = HOST) -> int:
    """The global id of a thread."""
    return pid(process, host) + thread


class Strings:
    """StringIds: texts by number."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.setdefault("StringIds", [])

    def __call__(self, text: str) -> int:
        for row in self._rows:
            if row["value"] == text:
                return int(row["id"])
        self._rows.append({"id": len(self._rows) + 1, "value": text})
        return len(self._rows)


def rows(table: Table) -> list[Row]:
    """The rows of a table of a Timeline."""
    columns = {f.name: getattr(table, f.name) for f in fields(table)}
    values = [c.to_list() if isinstance(c, Coded) else c.tolist() for c in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def export(timeline: Timeline, schema: str = "3.20.2") -> Tables:
    """The tables of schema 3.x, or of 2.x, which lacks some columns and has others elsewhere.

    Python frames and step marks have no place in an export: there must be none. Graph ids count
    from 1, and a node's id has its graph's in the upper half; `graphs_of` says what is read back.
    """
    old = schema.startswith("2.")
    tables: Tables = {}
    string = Strings(tables)
    about = "EXPORT_META_DATA" if old else "META_DATA_EXPORT"
    tables[about] = [{"name": "EXPORT_SCHEMA_VERSION", "value": schema}]
    for op in rows(timeline.device_ops):
        _operation(tables, string, op, old)
    records: dict[tuple[int, int], int] = {}
    for call in rows(timeline.host_calls):
        suffix = "_v7000" if call["correlation"] % 2 else ""
        driver = call["name"].startswith("cu") and not call["name"].startswith("cuda")
        tables.setdefault(DRIVER if old and driver else RUNTIME, []).append(
            {
                "start": call["start"],
                "end": call["end"],
                "eventClass": 1 if driver else 0,
                "globalTid": tid(call["process"], call["thread"]),
                "correlationId": call["correlation"],
                "nameId": string(call["name"] + suffix),
                "returnValue": _none(call["status"]),
                "callchainId": None if old else 0,
            }
        )
        if call["sync"]:
            records[call["process"], call["event_record"]] = call["event_stream"]
            tables.setdefault(SYNC, []).append(_sync(call, old))
    for (process, correlation), stream in records.items():
        if correlation >= 0:
            tables.setdefault(EVENT, []).append(_event(process, correlation, stream, old))
    for span in rows(timeline.ranges):
        _range(tables, string, span)
    if not timeline.steps == type(timeline.steps).empty():
        raise ValueError("an export has no step marks")
    return tables


def graphs_of(op: Row) -> tuple[int, int]:
    """Graph and node of an operation as they come back: whole graphs keep their own number."""
    if op["kind"] == "graph":
        return op["graph"], -1
    if op["graph"] < 0 or op["node"] < 0:
        return (op["graph"] + 1 if op["graph"] >= 0 else -1), -1
    return op["graph"] + 1, ((op["graph"] + 1) << 32) + op["node"]


def write(path: Path, tables: Mapping[str, list[Row]], shuffle: int | None = None) -> Path:
    """Write the tables; columns are those of any row. `shuffle` is a seed for the order of rows."""
    with closing(sqlite3.connect(path)) as db:
        for name, given in tables.items():
            columns = list(dict.fromkeys(c for row in given for c in row)) or ["id"]
            db.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
            ordered = list(given)
            if shuffle is not None:
                random.Random(shuffle).shuffle(ordered)
            marks = ", ".join("?" * len(columns))
            values = [[row.get(c) for c in columns] for row in ordered]
            db.executemany(f'INSERT INTO "{name}" VALUES ({marks})', values)
        db.commit()
    return path


def _operation(tables: Tables, string: Strings, op: Row, old: bool) -> None:
    made: Row = {
        "start": op["start"],
        "end": op["end"],
        "deviceId": op["device"],
        "contextId": 1,
        "streamId": op["stream"],
        "correlationId": _none(op["correlation"]),
        "globalPid": pid(op["process"]),
    }
    kind = op["kind"]
    if kind == "graph":
        tables.setdefault(GRAPH, []).append(made | {"graphId": op["graph"], "graphExecId": 9})
        return
    graph, node = graphs_of(op)
    made["graphNodeId"] = _none(node)
    if kind == "kernel":
        made |= {"demangledName": string(op["name"]), "shortName": string("short " + op["name"])}
        if not old:
            made["graphId"] = _none(graph)
        tables.setdefault(KERNEL, []).append(made)
    elif kind == "memcpy":
        found = _COPY.fullmatch(op["name"])
        assert found is not None, op["name"]
        direction, source, target = found.groups()
        made |= {
            "bytes": _none(op["bytes"]),
            "copyKind": DIRECTION[direction],
            "srcKind": MEMORY.get(source),
            "dstKind": MEMORY.get(target),
        }
        tables.setdefault(MEMCPY, []).append(made)
    else:
        made |= {"value": 0, "bytes": _none(op["bytes"]), "memKind": 2}
        tables.setdefault(MEMSET, []).append(made)


def _sync(call: Row, old: bool) -> Row:
    made = {
        "start": call["start"],
        "end": call["end"],
        "deviceId": 0,
        "contextId": 1,
        "streamId": call["stream"] if call["stream"] >= 0 else NO_ID,
        "correlationId": call["correlation"],
        "globalPid": pid(call["process"]),
        "syncType": SYNC_TYPE[call["sync"]],
        "eventId": HANDLE,
    }
    if not old:
        made["eventSyncId"] = call["event_record"] if call["event_record"] >= 0 else NO_ID
    return made


def _event(process: int, correlation: int, stream: int, old: bool) -> Row:
    made = {
        "deviceId": 0,
        "contextId": 1,
        "streamId": stream,
        "correlationId": correlation,
        "globalPid": pid(process),
        "eventId": HANDLE,
    }
    return made if old else made | {"timestamp": 0, "eventSyncId": correlation}


def _range(tables: Tables, string: Strings, span: Row) -> None:
    made = {"start": span["start"], "end": span["end"]}
    thread = None if span["thread"] < 0 else tid(span["process"], span["thread"])
    if span["kind"] in ("annotation", "op"):
        # Every other name is in the row itself, as older injections write it.
        name = span["name"] + (", op_id = 7" if span["kind"] == "op" else "")
        inline = span["start"] % 2
        text = {"text": name if inline else None, "textId": None if inline else string(name)}
        made |= {"eventType": 59, "domainId": 0, "globalTid": thread} | text
        tables.setdefault("NVTX_EVENTS", []).append(made)
        return
    table = {"os": "OSRT_API", "overhead": "PROFILER_OVERHEAD"}[span["kind"]]
    tables.setdefault(table, []).append(
        made | {"globalTid": thread, "nameId": string(span["name"])}
    )


def _none(value: int) -> int | None:
    return None if value < 0 else value
