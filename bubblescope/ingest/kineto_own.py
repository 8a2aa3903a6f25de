"""What bubblescope's own Chrome export says beyond what Kineto's files do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from bubblescope.ingest.kineto_events import CALL, SYNC, Events
from bubblescope.timeline import (
    Coded,
    DeviceOps,
    Health,
    HostCalls,
    Meta,
    Ranges,
    Steps,
    Table,
)
from bubblescope.timeline.tables import Int


class Own(msgspec.Struct):
    """The field "bubblescope" at the top of an exported file.

    meta: of the recording that was exported. threads: (process, thread as shown, thread) of the
    host rows that stand on a lane beside their thread's. processes, devices: (number as shown,
    rank, number), where there are several ranks. health: rank, kind, count, note.
    """

    meta: Meta
    threads: list[tuple[int, int, int]] = []
    processes: list[tuple[int, int, int]] = []
    devices: list[tuple[int, int, int]] = []
    health: list[tuple[int, str, int, str]] = []


class OwnCall(msgspec.Struct, omit_defaults=True):
    """The argument "bubblescope" of a host call; columns as in `HostCalls`."""

    status: int = -1
    sync: str = ""
    stream: int = -1
    event_stream: int = -1
    event_record: int = -1


def own(field: Any) -> Own | None:
    """The field read; None in files of others."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(field, Own)
    return None


def to_threads(events: Events, found: Own) -> None:
    """Bring host rows back from their lanes to their threads."""
    columns = events.columns
    on_host = columns["kind"] >= CALL
    for process, shown, thread in found.threads:
        rows = on_host & (columns["pid"] == process) & (columns["tid"] == shown)
        columns["tid"][rows & (columns["kind"] != SYNC)] = thread


_Host = TypeVar("_Host", HostCalls, Ranges, Steps)


def to_ranks(
    found: Own, ops: DeviceOps, calls: HostCalls, ranges: Ranges, steps: Steps
) -> dict[str, Table]:
    """The tables with their rows brought back to their ranks, each by its name."""
    rank, device = _back(found.devices, ops.rank, ops.device)
    _, process = _back(found.processes, ops.rank, ops.process)
    process[ops.process < 0] = -1  # no process named, whatever a rank calls -1
    return {
        "device_ops": replace(ops, rank=rank, device=device, process=process),
        "host_calls": _to_rank(found, calls),
        "ranges": _to_rank(found, ranges),
        "steps": _to_rank(found, steps),
    }


def _to_rank(found: Own, table: _Host) -> _Host:
    rank, process = _back(found.processes, table.rank, table.process)
    return replace(table, rank=rank, process=process)


def _back(numbers: list[tuple[int, int, int]], rank: Int, shown: Int) -> tuple[Int, Int]:
    """Rank and number of each row; both as they are where nothing else stands for them."""
    rank, own = rank.copy(), shown.copy()
    for number, its_rank, its_own in numbers:
        rows = shown == number
        rank[rows], own[rows] = its_rank, its_own
    return rank, own


def health(found: Own) -> Health:
    """The health rows of the recording that was exported."""
    rows = found.health
    rank, kind, count, note = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Health.build(len(rows), rank=rank, kind=kind, count=count, note=note)


def call_columns(
    events: Events, good: npt.NDArray[np.bool_], columns: dict[str, Any]
) -> dict[str, Any]:
    """Columns of host calls with what the calls say of themselves; as they were without any.

    good: mask over the calls of those that became rows of `columns`.
    """
    if not events.own:
        return columns
    row_of = np.cumsum(good) - 1
    columns = {"status": np.full(int(good.sum()), -1, np.int64)} | columns
    sync = columns["sync"].to_list()
    for call, field in events.own:
        with suppress(msgspec.ValidationError):
            said = msgspec.convert(field, OwnCall)
            row = row_of[call]
            if good[call]:
                sync[row] = said.sync
                for name in ("status", "stream", "event_stream", "event_record"):
                    columns[name][row] = getattr(said, name)
    return columns | {"sync": Coded.of(sync)}
