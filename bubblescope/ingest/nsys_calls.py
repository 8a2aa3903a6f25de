"""CUDA calls of an Nsight Systems export: what each waited for, and where it was made."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from bubblescope.ingest import nsys_stacks
from bubblescope.ingest.codes import coded
from bubblescope.ingest.nsys_places import Places, paired, process_part, threads
from bubblescope.ingest.nsys_strings import Strings
from bubblescope.ingest.nsys_times import plausible
from bubblescope.ingest.sqlite import NULL, Database
from bubblescope.timeline import Coded, Frames, HostCalls, api
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

# The driver's calls are in the first table too; only old exports have them apart.
TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

_WORDS = ("", "event", "stream wait", "stream", "context")
"""What a synchronisation row of each type is of."""
# Some exports number the types otherwise: a call whose name says what it waits for is believed.
_SAID = (
    ("stream wait", re.compile("StreamWaitEvent")),
    ("event", re.compile("Event(Synchronize|Query)")),
    ("stream", re.compile("Stream(Synchronize|Query)")),
    ("context", re.compile("(Device|Ctx|Thread|Context)Synchronize")),
)
_NONE = 2**32 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """Host calls before it is known which rank they belong to.

    table: rows of both tables. global_id: the thread of each, NULL where that is not recorded.
    good: which rows have times that can be true.
    """

    table: HostCalls
    frames: Frames
    global_id: Int
    good: Mask

    @property
    def part(self) -> Int:
        """The process part of each call's global id."""
        return process_part(self.global_id)

    def placed(self, places: Places) -> HostCalls:
        """The calls with usable times, each with its rank, process and thread."""
        table, global_id = self.table.take(self.good), self.global_id[self.good]
        part = process_part(global_id)
        return replace(
            table,
            rank=places.ranks(part),
            process=places.processes(part),
            thread=threads(global_id),
        )


def read(database: Database, strings: Strings) -> Calls:
    """All calls of the export."""
    columns = [
        database.integers(
            table,
            "start",
            "end",
            "globalTid",
            "correlationId",
            "nameId",
            "returnValue",
            "callchainId",
        )
        for table in TABLES
        if table in database
    ]
    joined = [np.concatenate(c) for c in zip(*columns, strict=True)]
    if not joined:
        joined = [np.zeros(0, np.int64)] * 7
    start, end, global_id, correlation, name, status, chain = joined
    frame, frames = nsys_stacks.frames(database, strings, chain)
    names = strings.column(name, "call without a name").map(api.plain)
    correlation = np.where(correlation == NULL, -1, correlation)
    table = HostCalls.build(
        len(start),
        name=names,
        start=start,
        end=end,
        correlation=correlation,
        frame=frame,
        status=np.where(status == NULL, -1, status),
        **_syncs(database, process_part(global_id), correlation, names),
    )
    return Calls(table, frames, global_id, plausible(start, end))


def _syncs(database: Database, part: Int, correlation: Int, names: Coded) -> dict[str, Int | Coded]:
    """What the synchronisation rows say, brought to their calls by (process, correlation id)."""
    kind, owner, row_id, stream, event, number = database.integers(
        SYNC, "syncType", "globalPid", "correlationId", "streamId", "eventId", "eventSyncId"
    )
    if not len(kind):
        return {}
    calls, rows = _keys(part, correlation, process_part(owner), row_id)
    order = np.argsort(rows, kind="stable")
    at = np.minimum(np.searchsorted(rows[order], calls), len(rows) - 1)
    row = order[at]
    found = (rows[row] == calls) & (correlation >= 0)
    row = np.where(found, row, -1)

    said = np.zeros(len(names.values), np.int64)
    for code, name in enumerate(names.values):
        said[code] = next((_WORDS.index(w) for w, pattern in _SAID if pattern.search(name)), 0)
    typed = np.where((kind > 0) & (kind < len(_WORDS)), kind, 0)[row]
    word = np.where(said[names.codes] > 0, said[names.codes], typed)
    record_stream, record = _records(database, process_part(owner), event, number)

    def column(values: Int) -> Int:
        return np.where(found & (values[row] != NULL) & (values[row] != _NONE), values[row], -1)

    return {
        "sync": coded(np.where(found, word, 0), _WORDS),
        "stream": column(stream),
        "event_stream": column(record_stream),
        "event_record": column(record),
    }


def _records(database: Database, owner: Int, event: Int, number: Int) -> tuple[Int, Int]:
    """Stream and correlation id of the record of each event waited for; NULL where not recorded.

    Handles of events are used again: only the number of the record tells which one it was.
    """
    stream, correlation, made, handle, sync = database.integers(
        EVENT, "streamId", "correlationId", "globalPid", "eventId", "eventSyncId"
    )
    nothing = np.full(len(event), NULL, np.int64)
    if not len(stream):
        return nothing, nothing
    records = np.stack([process_part(made), handle, sync], axis=1)
    wanted = np.stack([owner, event, number], axis=1)
    keys = np.unique(np.concatenate([records, wanted]), axis=0, return_inverse=True)[1].reshape(-1)
    of_key = np.full(int(keys.max()) + 1, -1, np.int64)
    of_key[keys[: len(records)]] = np.arange(len(records))
    row = of_key[keys[len(records) :]]
    known = (row >= 0) & (number != NULL) & (number != _NONE)
    return np.where(known, stream[row], NULL), np.where(known, correlation[row], NULL)


def _keys(part: Int, correlation: Int, owner: Int, row_id: Int) -> tuple[Int, Int]:
    """One number for each (process, correlation id), of calls and of rows that refer to them.

    Where the rows name no process, the id alone is one.
    """
    if (owner == NULL).all():
        return correlation, row_id
    process, number = (np.concatenate(c) for c in ((part, owner), (correlation, row_id)))
    keys = paired(process, number)
    return keys[: len(part)], keys[len(part) :]
