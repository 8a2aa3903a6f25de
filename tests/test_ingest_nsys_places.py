"""Ranks, processes, devices and the machine, as an Nsight Systems export states them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
from bubblescope.timeline import Device, ThreadName, Timeline
from tests.nsys_export import HOST, KERNEL, RUNTIME, Row, Strings, Tables, export, pid, tid, write
from tests.synthetic import TraceBuilder


def processes(*devices: tuple[int, int], host: int = HOST) -> Tables:
    """A process a (pid, device), each with the same ids: a launch at 10 of a kernel [20,50)."""
    trace = TraceBuilder()
    for process, device in devices:
        mine = trace.on(process=process, thread=process, device=device)
        mine.launch("k", at=10, dur=5, start=20, run=30)
    return export(trace.timeline())


def read(tmp_path: Path, tables: Tables) -> Timeline:
    return load(write(tmp_path / "a.sqlite", tables))


def where(timeline: Timeline) -> list[tuple[int, int, int]]:
    """Rank, process and device of each operation."""
    o = timeline.device_ops
    return sorted(zip(o.rank.tolist(), o.process.tolist(), o.device.tolist(), strict=True))


def test_processes_with_gpus_of_their_own_are_ranks(tmp_path: Path) -> None:
    # In the order of their devices, not of their numbers.
    timeline = read(tmp_path, processes((70, 1), (80, 0)))
    assert where(timeline) == [(0, 80, 0), (1, 70, 1)]
    assert sorted(zip(timeline.host_calls.rank, timeline.host_calls.process, strict=True)) == [
        (0, 80),
        (1, 70),
    ]
    assert timeline.meta.world_size == 2
    # Correlation ids are the same in both; each launch is joined to its own.
    joined = diagnose(timeline)
    assert (joined.total("busy_ns"), joined.launches.calls[0].call.count) == (60, 2)


def test_one_process_with_two_gpus_is_one_rank(tmp_path: Path) -> None:
    timeline = read(tmp_path, processes((70, 0), (70, 1)))
    assert where(timeline) == [(0, 70, 0), (0, 70, 1)]
    assert timeline.meta.world_size == 1


def test_processes_that_share_a_gpu_are_one_rank(tmp_path: Path) -> None:
    timeline = read(tmp_path, processes((70, 0), (80, 0)))
    assert where(timeline) == [(0, 70, 0), (0, 80, 0)]
    assert timeline.health.kind.to_list() == ["shared device"]
    assert timeline.health.note.to_list() == [
        "several processes name device 0: taken to be one GPU"
    ]


def test_each_process_counts_its_devices_from_0(tmp_path: Path) -> None:
    tables = processes((70, 0), (80, 0))
    tables["TARGET_INFO_CUDA_DEVICE"] = [
        {"gpuId": 5, "cudaId": 0, "pid": 70},
        {"gpuId": 3, "cudaId": 0, "pid": 80},
    ]
    timeline = read(tmp_path, tables)
    assert where(timeline) == [(0, 80, 3), (1, 70, 5)]
    assert not len(timeline.health)


def test_gpus_that_are_stated_to_be_shared_need_no_note(tmp_path: Path) -> None:
    tables = processes((70, 0), (80, 0))
    tables["TARGET_INFO_CUDA_DEVICE"] = [
        {"gpuId": 5, "cudaId": 0, "pid": process} for process in (70, 80)
    ]
    timeline = read(tmp_path, tables)
    assert where(timeline) == [(0, 70, 5), (0, 80, 5)]
    assert not len(timeline.health)


def test_ranks_as_mpi_numbered_them(tmp_path: Path) -> None:
    tables = processes((70, 0), (80, 1))
    tables["MPI_RANKS"] = [
        {"globalTid": tid(70, 70), "rank": 1},
        {"globalTid": tid(80, 80), "rank": 0},
    ]
    assert where(read(tmp_path, tables)) == [(0, 80, 1), (1, 70, 0)]


def test_two_machines_may_have_the_same_process_number(tmp_path: Path) -> None:
    tables = processes((70, 0))
    other = 2 * HOST
    tables[KERNEL].append(tables[KERNEL][0] | {"globalPid": pid(70, other), "deviceId": 1})
    tables[RUNTIME].append(tables[RUNTIME][0] | {"globalTid": tid(70, 70, other)})
    ops = read(tmp_path, tables).device_ops
    assert ops.rank.tolist() == [0, 1]
    assert len(set(ops.process.tolist())) == 2


def test_operations_without_an_owner_are_their_callers(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.on(process=70, thread=70).launch("a", at=10, dur=5, start=20, run=30)
    other = trace.on(process=80, thread=80, device=1)
    other.call("cudaGetDevice", at=1, dur=1).launch("b", at=10, dur=5, start=20, run=30)
    tables = export(trace.timeline())
    for row in tables[KERNEL]:
        del row["globalPid"]
    # Ids: 1 in both processes; 2 in the second alone, which is the launch of b.
    assert where(read(tmp_path, tables)) == [(0, -1, 0), (0, 80, 1)]
    one = processes((70, 0))
    del one[KERNEL][0]["globalPid"]
    assert where(load(write(tmp_path / "one.sqlite", one))) == [(0, 70, 0)]


# The machine -----------------------------------------------------------------------------------

GPU: Row = {"id": 0, "name": "NVIDIA H200", "totalMemory": 150_000_000_000, "smCount": 132}


@pytest.mark.parametrize("table", ["TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU"])
def test_devices(table: str, tmp_path: Path) -> None:
    old = {"deviceId": 0, "name": "NVIDIA H200", "numMultiprocessors": 132}
    row = GPU if table == "TARGET_INFO_GPU" else old
    number = next(iter(row))
    tables = processes((70, 0)) | {table: [row, row | {number: 1}]}
    memory = row.get("totalMemory", 0)
    assert read(tmp_path, tables).meta.devices == (Device(0, 0, "NVIDIA H200", memory, 132),)


def test_names_of_processes_and_threads(tmp_path: Path) -> None:
    tables = processes((70, 0))
    string = Strings(tables)
    tables["PROCESSES"] = [
        {"globalPid": pid(70), "pid": 70, "name": "python"},
        {"globalPid": pid(99), "pid": 99, "name": "sshd"},  # has no rows
    ]
    tables["ThreadNames"] = [
        {"globalTid": tid(70, 70), "nameId": string("serve")},
        {"globalTid": tid(70, 71), "nameId": string("worker")},
    ]
    assert read(tmp_path, tables).meta.threads == (
        ThreadName(0, 70, -1, "python"),
        ThreadName(0, 70, 70, "serve"),
        ThreadName(0, 70, 71, "worker"),
    )


def test_versions_and_what_was_run(tmp_path: Path) -> None:
    tables = processes((70, 0))
    tables["META_DATA_EXPORT"] += [{"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.1.90"}]
    tables["TARGET_INFO_SYSTEM_ENV"] = [
        {"name": "CudaDriverVersion", "value": "12040"},
        {"name": "NvDriverVersion", "value": "550.54.15"},
        {"name": "Hostname", "value": "somewhere"},
    ]
    tables["META_DATA_CAPTURE"] = [
        {"name": "PROCESS_0:COMMAND", "value": "python"},
        {"name": "PROCESS_0:ARGUMENT_0", "value": "serve.py"},
        {"name": "PROCESS_0:ARGUMENT_1", "value": "--tp=4"},
        {"name": "DOMAIN_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": "Graph"},
    ]
    meta = read(tmp_path, tables).meta
    assert meta.versions == {
        "Nsight Systems": "2025.3.1.90",
        "export schema": "3.20.2",
        "CUDA driver": "12.4",
        "driver": "550.54.15",
    }
    assert meta.about == {"run": "python serve.py --tp=4", "CUDA graphs": "graph"}


EPOCH = 1_754_324_972_242_076_786


def test_times_since_1970_where_the_start_of_the_session_is_known(tmp_path: Path) -> None:
    tables = processes((70, 0))
    tables["NVTX_EVENTS"] = [
        {"start": 5, "end": None, "eventType": 59, "text": "open", "globalTid": tid(70, 70)}
    ]
    tables["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": EPOCH}]
    timeline = read(tmp_path, tables)
    assert timeline.meta.base_ns == EPOCH
    assert timeline.device_ops.start.tolist() == [EPOCH + 20]
    assert timeline.host_calls.end.tolist() == [EPOCH + 15]
    assert timeline.ranges.start.tolist() == [EPOCH + 5]
    assert timeline.ranges.end.tolist() == [EPOCH + 50]  # the end of the recording


@pytest.mark.parametrize("start", [EPOCH + 20, 20])
def test_times_that_are_absolute_or_of_no_known_session_stay(start: int, tmp_path: Path) -> None:
    tables = processes((70, 0))
    tables[KERNEL][0] |= {"start": start, "end": start + 30}
    if start > EPOCH:
        tables["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": EPOCH}]
    timeline = read(tmp_path, tables)
    assert timeline.meta.base_ns == 0
    assert timeline.device_ops.start.tolist() == [start]


def test_what_nsys_says_it_lost(tmp_path: Path) -> None:
    tables = processes((70, 0))
    tables["DIAGNOSTIC_EVENT"] = [
        {"severity": 2, "text": "Not all CUDA events might\nhave been collected."},
        {"severity": 2, "text": "Not all CUDA events might have been collected."},
        {"severity": 2, "text": "Vulkan layer is not there."},  # of no concern
        {"severity": 1, "text": "CUDA injection initialised."},
        {"severity": 3, "text": "The target ran out of disk."},
    ]
    health = read(tmp_path, tables).health
    assert list(zip(health.note.to_list(), health.count.tolist(), strict=True)) == [
        ("Not all CUDA events might have been collected.", 2),
        ("The target ran out of disk.", 1),
    ]
