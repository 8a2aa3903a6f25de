"""Nsight Systems exports of the corpus, against its index, its reports and SQLite's own sums."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Diagnosis, Part
from bubblescope.ingest import load
from bubblescope.timeline import Timeline
from bubblescope.timeline.api import is_sync
from tests.corpus import need
from tests.test_ingest_corpus import NSYS, index

US = 1_000
T4 = "nsightful_t4_power_iteration.sqlite"


@cache
def _seen(path: Path) -> tuple[Timeline, Diagnosis]:
    before = path.stat()
    timeline = load(path)
    after = path.stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)
    return timeline, diagnose(timeline)


def seen(path: str) -> tuple[Timeline, Diagnosis]:
    return _seen(need(path))


def sql(path: str, query: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(f"{need(path).as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        return db.execute(query).fetchall()


UNION = """
    WITH work AS (
        SELECT deviceId, start, end FROM {}
    ),
    reach AS (
        SELECT deviceId, start, end, max(end) OVER (
            PARTITION BY deviceId ORDER BY start, end
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before FROM work
    )
    SELECT deviceId, sum(max(0, end - max(start, ifnull(before, start)))),
           max(end) - min(start), max(start - ifnull(before, start))
    FROM reach GROUP BY deviceId ORDER BY deviceId
"""
"""Device, busy time, window and largest gap, by SQLite alone."""


def measured(path: str) -> list[tuple[int, ...]]:
    have = {name for (name,) in sql(path, "SELECT name FROM sqlite_master")}
    kinds = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
    tables = [t for t in (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in kinds) if t in have]
    return sql(path, UNION.format(" UNION ALL SELECT deviceId, start, end FROM ".join(tables)))


@pytest.mark.parametrize(
    "path", [*(f"traces/{name}" for name in NSYS), "reports/32.sqlite", "reports/33.sqlite"]
)
def test_busy_and_gaps_are_those_that_sqlite_finds(path: str) -> None:
    _, diagnosis = seen(path)
    found = [
        (d.device, d.busy_ns, d.window_ns, int((d.bubbles.end - d.bubbles.start).max()))
        for d in diagnosis.devices
    ]
    assert found == measured(path)
    for device in diagnosis.devices:
        assert device.busy_ns + sum(device.parts_ns.values()) == device.window_ns


@pytest.mark.parametrize("name", NSYS)
def test_counts_are_those_of_the_index(name: str) -> None:
    row, (got, diagnosis) = index()[name], seen(f"traces/{name}")
    ops, calls = got.device_ops, got.host_calls
    assert int(ops.kind.where("kernel".__eq__).sum()) == int(row["kernels"])
    assert len(calls) == int(row["runtime/driver calls"])

    def named(*stems: str) -> int:
        return int(calls.name.where(lambda n: is_sync(n) and any(s in n for s in stems)).sum())

    syncs = named("Stream"), named("Device", "Ctx"), named("Event")
    assert "/".join(map(str, syncs)) == row["sync st/dev/ev"]
    copies = ops.kind.where("memcpy".__eq__) & ops.name.where(lambda n: "DtoH" in n)
    assert int(copies.sum()) == int(row["DtoH copies"])
    for column, digits in (("GPU busy %", 0.051), ("largest gap ms", 0.051)):
        expected = [float(cell) for cell in row[column].split(";")]
        shown = [
            100 * d.busy_ns / d.window_ns
            if "%" in column
            else int((d.bubbles.end - d.bubbles.start).max()) / 1e6
            for d in diagnosis.devices
        ]
        assert shown == pytest.approx(expected, abs=digits)
    version, schema = row["versions"].split(", ")
    assert got.meta.versions["Nsight Systems"] == version.removeprefix("nsys ")
    assert got.meta.versions["export schema"] == schema.removeprefix("schema ")


@pytest.mark.parametrize("name", NSYS)
def test_rows_that_the_export_has(name: str) -> None:
    got, _ = seen(f"traces/{name}")
    path = f"traces/{name}"
    base = got.meta.base_ns
    ((epoch,),) = sql(path, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
    assert base == epoch
    query = "SELECT start, end, deviceId, streamId, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
    ops = got.device_ops.take(got.device_ops.kind.where("kernel".__eq__))
    found = zip(
        *(c.tolist() for c in (ops.start - base, ops.end - base, ops.device, ops.stream)),
        ops.correlation.tolist(),
        strict=True,
    )
    assert sorted(found) == sorted(sql(path, query))
    query = (
        "SELECT start, end, globalTid / 0x1000000 % 0x1000000, globalTid % 0x1000000, "
        "correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    )
    calls = got.host_calls
    found = zip(
        *(c.tolist() for c in (calls.start - base, calls.end - base, calls.process, calls.thread)),
        calls.correlation.tolist(),
        strict=True,
    )
    assert sorted(found) == sorted(sql(path, query))
    query = "SELECT count(*) FROM NVTX_EVENTS WHERE eventType IN (59, 60)"
    nvtx = got.ranges.kind.where({"annotation", "op"}.__contains__)
    assert int(nvtx.sum()) == sql(path, query)[0][0]


def test_a_read_back_in_every_iteration() -> None:
    """89 copies to pageable memory, each with its stream synchronise: two in each `Step`."""
    got, d = seen(f"traces/{T4}")
    assert d.marker == "Step # to #"
    read, _ = d.reads
    assert (read.name, read.calls, read.calls_per_step) == ("cudaMemcpyAsync", 88, 2)
    assert read.within[-1] == "Copy #"
    sync = got.host_calls.name.where("cudaStreamSynchronize".__eq__)
    assert set(got.host_calls.sync.take(sync).to_list()) == {"stream"}  # the rows say 2
    assert [(x.index, x.name, x.multiprocessors) for x in got.meta.devices] == [(0, "Tesla T4", 40)]
    assert set(got.ranges.kind.to_list()) == {"annotation", "op", "os", "overhead"}


@pytest.mark.parametrize("name", ["nsysai_2gpu_before.sqlite", "nsysai_h100_2gpu_1s.sqlite"])
def test_two_processes_are_two_ranks(name: str) -> None:
    got, d = seen(f"traces/{name}")
    assert [(x.rank, x.device) for x in d.devices] == [(0, 0), (1, 1)]
    owners = sql(
        f"traces/{name}",
        "SELECT DISTINCT deviceId, globalPid / 0x1000000 % 0x1000000 "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1",
    )
    ops = got.device_ops
    found = np.unique(np.stack([ops.device, ops.process], axis=1), axis=0)
    assert [tuple(row) for row in found.tolist()] == owners
    assert got.meta.world_size == 2


# Reports ---------------------------------------------------------------------------------------


def test_graphs_recorded_as_one_block() -> None:
    # 32: three blocks, 11,850 of 13,950 us, gaps of 1,050; no KERNEL table.
    got, d = seen("reports/32.sqlite")
    (device,) = d.devices
    assert got.device_ops.kind.to_list() == ["graph"] * 3
    assert (device.busy_ns, device.window_ns) == (11_850 * US, 13_950 * US)
    assert 100 * device.busy_ns / device.window_ns == pytest.approx(84.9, abs=0.05)
    assert (device.bubbles.end - device.bubbles.start).tolist() == [1_050 * US] * 2
    assert device.opaque_ns == device.busy_ns
    assert d.level == "graph"
    assert device.parts_ns[Part.UNKNOWN] == 0
    (note,) = got.health.note.to_list()
    assert "--cuda-graph-trace=node" in note


def test_an_export_with_few_tables() -> None:
    # 33: twelve kernels, 11,880 of 13,960 us, gaps of 1,040.
    got, d = seen("reports/33.sqlite")
    (device,) = d.devices
    assert got.device_ops.kind.to_list() == ["kernel"] * 12
    assert (device.busy_ns, device.window_ns) == (11_880 * US, 13_960 * US)
    assert 100 * device.busy_ns / device.window_ns == pytest.approx(85.1, abs=0.05)
    assert (device.bubbles.end - device.bubbles.start).tolist() == [1_040 * US] * 2
    assert not len(got.health)
    assert not len(got.ranges)
    tables = {name for (name,) in sql("reports/33.sqlite", "SELECT name FROM sqlite_master")}
    assert not [t for t in tables if t.endswith(("MEMCPY", "MEMSET", "SYNCHRONIZATION"))]
