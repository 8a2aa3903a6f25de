"""Nsight Systems exports against known truth: what is written into a database comes back."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Part
from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from bubblescope.timeline import Coded, Timeline
from tests import nsys_export as nsys
from tests.nsys_export import GRAPH, KERNEL, MEMCPY, MEMSET, RUNTIME, SYNC, export, rows, write
from tests.strategies import recordings
from tests.synthetic import TraceBuilder

WORK = (KERNEL, MEMCPY, MEMSET, GRAPH)


def decode() -> TraceBuilder:
    """Three steps of all that an export can hold; a read waits at the end of each.

    Step k, t = 1,000 k: kernel [t+100,200), set [200,210), replay of two nodes [t+250,300) and
    [t+310,400), a replay recorded whole [t+400,500), copy [t+500,520), read back by t+530.
    """
    trace = TraceBuilder()
    for k in range(3):
        t = 1_000 * k
        trace.range("annotation", f"step {k}", at=t + 10, dur=600)
        trace.range("op", "aten::mm", at=t + 20, dur=60)
        trace.launch("gemm", at=t + 30, dur=20, start=t + 100, run=100)
        trace.memset(at=t + 60, dur=5, start=t + 200, run=10)
        trace.record(f"e{k}", at=t + 66, dur=1)
        trace.stream_wait(f"e{k}", at=t + 68, dur=1)
        nodes = [("a", t + 250, 50), ("b", t + 310, 90)]
        trace.graph(at=t + 70, dur=10, nodes=nodes, graph=3)
        trace.whole_graph(at=t + 81, dur=10, start=t + 400, run=100, graph=5)
        trace.copy("DtoH", at=t + 95, dur=10, start=t + 500, run=20, memory="Pinned")
        trace.sync(at=t + 110, dur=420, row="stream")
        trace.overhead("Buffer flush", at=t + 540, dur=20)
        trace.range("os", "write", at=t + 570, dur=30)
    return trace


def sorted_rows(table: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows(table))


def as_read(timeline: Timeline) -> Timeline:
    """The Timeline with the numbers that graphs and nodes have in the export."""
    ops = rows(timeline.device_ops)
    graph, node = (np.array(c, np.int64) for c in zip(*map(nsys.graphs_of, ops), strict=True))
    return replace(timeline, device_ops=replace(timeline.device_ops, graph=graph, node=node))


def same(got: Timeline, expected: Timeline) -> None:
    """Row for row, whatever the order of rows that begin and end together."""
    for name in ("device_ops", "host_calls", "ranges"):
        table = as_read(expected).tables()[name]
        assert sorted_rows(got.tables()[name]) == sorted_rows(table), name


def test_every_row_comes_back(tmp_path: Path) -> None:
    expected = decode().timeline()
    got = load(write(tmp_path / "a.sqlite", export(expected)))
    same(got, expected)
    assert got.meta.format == "Nsight Systems"
    assert got.meta.versions == {"export schema": "3.20.2"}


def test_the_diagnosis_is_that_of_what_happened(tmp_path: Path) -> None:
    # Each step: busy [100,210), [250,300), [310,520). Bubbles: [210,250) before the replay, which
    # was queued; [300,310) in it; [520,t+1100) between steps: read tail to 530, host gap to 1030,
    # launch call to 1050, latency to 1100. In the host gap: the profiler 20, `write` 30, the mark
    # of this step 30 and of the next 10, aten::mm 10. The read makes its thread 420 late.
    d = diagnose(load(write(tmp_path / "a.sqlite", export(decode().timeline()))))
    (device,) = d.devices
    assert (device.window_ns, device.busy_ns) == (2_420, 3 * (110 + 50 + 210))
    assert device.opaque_ns == 3 * 100
    assert {part: ns for part, ns in device.parts_ns.items() if ns} == {
        Part.DEVICE_GAP: 3 * 40,
        Part.GRAPH_GAP: 3 * 10,
        Part.READ_TAIL: 2 * 10,
        Part.HOST_GAP: 2 * 500,
        Part.LAUNCH_CALL: 2 * 20,
        Part.LAUNCH_LATENCY: 2 * 50,
    }
    assert {f.name: (f.doing, f.ns) for f in d.fillers} == {
        "": ("nothing recorded", 2 * 400),
        "step #": ("annotation", 2 * 40),
        "write": ("operating system", 2 * 30),
        "Buffer flush": ("profiler overhead", 2 * 20),
        "aten::mm": ("framework op", 2 * 10),
    }
    (read,) = d.reads
    assert (read.name, read.calls, read.waited) == ("cudaStreamSynchronize", 3, 3)
    assert (read.blocked_ns, read.exposed_idle_ns, read.idle_after_ns) == (3 * 420, 2 * 420, 1_160)


def test_schemas_2_and_3_read_alike(tmp_path: Path) -> None:
    expected = decode().call("cuLaunchKernel", at=4_000, dur=10).timeline()
    new = load(write(tmp_path / "new.sqlite", export(expected, "3.20.2")))
    tables = export(expected, "2.7.1")
    assert nsys.DRIVER in tables
    old = load(write(tmp_path / "old.sqlite", tables))
    # Which record of an event is waited for is told by a number that schema 2 does not have.
    calls = replace(
        new.host_calls,
        event_stream=np.full_like(new.host_calls.start, -1),
        event_record=np.full_like(new.host_calls.start, -1),
    )
    assert old.tables() == (new.tables() | {"host_calls": calls})
    assert (new.host_calls.event_record >= 0).sum() == 3
    assert old.meta.versions == {"export schema": "2.7.1"}


def test_names_of_tables_and_columns_in_any_case(tmp_path: Path) -> None:
    tables = export(decode().timeline())
    lower = {
        name.lower(): [{c.upper(): v for c, v in row.items()} for row in given]
        for name, given in tables.items()
    }
    same(load(write(tmp_path / "a.sqlite", lower)), decode().timeline())


@pytest.mark.parametrize("missing", export(decode().timeline()))
def test_any_table_may_be_missing(missing: str, tmp_path: Path) -> None:
    expected = load(write(tmp_path / "whole.sqlite", export(decode().timeline())))
    tables = export(decode().timeline())
    del tables[missing]
    got = load(write(tmp_path / "less.sqlite", tables))
    kinds = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset", GRAPH: "graph"}
    lost = kinds.get(missing, "")
    ops = expected.device_ops.take(~expected.device_ops.kind.where(lost.__eq__))
    if missing == "StringIds":
        ops = replace(
            ops,
            name=Coded.of(
                [
                    "kernel without a name" if kind == "kernel" else name
                    for kind, name in zip(ops.kind.to_list(), ops.name.to_list(), strict=True)
                ]
            ),
        )
    assert sorted_rows(got.device_ops) == sorted_rows(ops)
    ranges = {"NVTX_EVENTS": ("annotation", "op"), "OSRT_API": ("os",)}
    gone = ranges.get(missing, ("overhead",) if missing == "PROFILER_OVERHEAD" else ())
    kept = ~expected.ranges.kind.where(gone.__contains__)
    assert len(got.ranges) == int(kept.sum())
    assert len(got.host_calls) == (0 if missing == RUNTIME else len(expected.host_calls))
    sync = set(got.host_calls.sync.to_list())
    if missing == SYNC:
        assert sync == {""}
    elif missing != RUNTIME:
        assert sync == ({"", "stream wait", "stream"})
    whole = int((expected.device_ops.end - expected.device_ops.start).sum())
    if missing not in WORK:  # nothing overlaps
        assert diagnose(got).total("busy_ns") == whole


COLUMNS = [
    (table, column)
    for table, given in export(decode().timeline()).items()
    for column in given[0]
    if column not in ("start", "end")
]


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_any_column_may_be_missing(table: str, column: str, tmp_path: Path) -> None:
    tables = export(decode().timeline())
    for row in tables[table]:
        del row[column]
    got = load(write(tmp_path / "a.sqlite", tables))
    expected = decode().timeline()
    assert sorted(got.device_ops.start.tolist()) == sorted(expected.device_ops.start.tolist())
    assert sorted(got.host_calls.end.tolist()) == sorted(expected.host_calls.end.tolist())
    assert got.meta.world_size == 1
    assert set(got.device_ops.process.tolist()) == {4000}
    busy = int((expected.device_ops.end - expected.device_ops.start).sum())
    assert diagnose(got).total("busy_ns") == busy


# Whatever is in it, in whatever order ----------------------------------------------------------


def one_process(timeline: Timeline) -> Timeline:
    """What rank 0's first process did: an export has no ranks of its own, nor Python frames."""

    def mine(table: Any) -> Any:
        return table.take((table.rank == 0) & np.isin(table.process, [100, -1]))

    ranges = mine(timeline.ranges)
    return Timeline.of(
        timeline.meta,
        device_ops=mine(timeline.device_ops),
        host_calls=mine(timeline.host_calls),
        ranges=ranges.take(~ranges.kind.where("python".__eq__)),
    )


number = itertools.count()
thorough = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@given(timeline=recordings().map(one_process), seed=st.integers(0, 2**32))
@thorough
def test_shuffled_rows_are_the_same_recording(
    timeline: Timeline, seed: int, tmp_path: Path
) -> None:
    tables = export(timeline)
    name = f"{next(number)}"
    straight = load(write(tmp_path / f"{name}.sqlite", tables))
    same(straight, timeline)
    (folder := tmp_path / f"{name} shuffled").mkdir()
    assert load(write(folder / f"{name}.sqlite", tables, shuffle=seed)) == straight
    for device in diagnose(straight).devices:
        assert device.busy_ns == union_in_sql(tmp_path / f"{name}.sqlite", device.device)


def union_in_sql(path: Path, device: int) -> int:
    """The busy time of a device by SQLite alone: the union of all intervals."""
    with closing(sqlite3.connect(path)) as db:
        have = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        parts = [f"SELECT start, end FROM {t} WHERE deviceId = {device}" for t in WORK if t in have]
        (total,) = db.execute(
            f"""
            WITH work AS ({" UNION ALL ".join(parts)}),
            reach AS (
                SELECT start, end, max(end) OVER (
                    ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS before FROM work
            )
            SELECT sum(max(0, end - max(start, ifnull(before, start)))) FROM reach
            """
        ).fetchone()
    return int(total)


# Times that cannot be true ---------------------------------------------------------------------

YEAR = 365 * 24 * 3_600 * 10**9


@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (0, 900), (None, 5), (5, None), (9, 4), (5, YEAR), (-200 * YEAR, 5)]
)
def test_impossible_times_are_dropped_and_counted(start: Any, end: Any, tmp_path: Path) -> None:
    tables = export(decode().timeline())
    tables[KERNEL].append(tables[KERNEL][0] | {"start": start, "end": end})
    got = load(write(tmp_path / "a.sqlite", tables))
    same_ops = sorted_rows(as_read(decode().timeline()).device_ops)
    assert sorted_rows(got.device_ops) == same_ops
    (note,) = rows(got.health)[:1]
    assert (note["kind"], note["count"]) == ("time out of range", 1)
    for row in itertools.chain(*(tables[t] for t in WORK)):
        row |= {"start": start, "end": end}
    with pytest.raises(BubblescopeError, match=r"none of its 19 device operations has a time"):
        load(write(tmp_path / "none.sqlite", tables))


@pytest.mark.parametrize("by", [10**14, -(10**14)])
def test_operations_days_away_are_dropped(by: int, tmp_path: Path) -> None:
    # As where a clock was read wrongly (https://github.com/pytorch/pytorch/issues/192021).
    tables = export(decode().timeline())
    for row in tables[KERNEL][:2]:
        row |= {"start": row["start"] + by, "end": row["end"] + by}
    tables[MEMCPY][0]["end"] += abs(by)
    got = load(write(tmp_path / "a.sqlite", tables))
    assert len(got.device_ops) == len(decode().timeline().device_ops) - 3
    assert len(got.host_calls) == len(decode().timeline().host_calls)
    (note,) = rows(got.health)[:1]
    assert (note["kind"], note["count"]) == ("time far from all others", 3)


def test_a_device_clock_that_is_off_throughout(tmp_path: Path) -> None:
    tables = export(decode().timeline())
    for row in itertools.chain(*(tables[t] for t in WORK)):
        row |= {"start": row["start"] + 10**14, "end": row["end"] + 10**14}
    with pytest.raises(BubblescopeError, match=r"none of its 18 device operations has a time"):
        load(write(tmp_path / "a.sqlite", tables))


def test_work_of_another_day_is_work(tmp_path: Path) -> None:
    tables = export(decode().timeline())
    for table, row in ((KERNEL, tables[KERNEL][0]), (RUNTIME, tables[RUNTIME][0])):
        day = {"start": row["start"] + 10**14, "end": row["end"] + 10**14, "correlationId": 900}
        tables[table].append(row | day)
    got = load(write(tmp_path / "a.sqlite", tables))
    assert len(got.device_ops) == len(decode().timeline().device_ops) + 1
    assert "time far from all others" not in got.health.kind.to_list()


def test_an_empty_table_is_as_good_as_none(tmp_path: Path) -> None:
    tables = export(decode().timeline())
    tables[MEMSET] = []
    tables["NVTX_EVENTS"] = []
    got = load(write(tmp_path / "a.sqlite", tables))
    assert "memset" not in got.device_ops.kind.to_list()
    assert set(got.ranges.kind.to_list()) == {"os", "overhead"}
