from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
from bubblescope.timeline import Timeline


def span(cat: str, name: str, ts: Any, dur: Any, pid: Any = 1, tid: Any = 1, **args: Any) -> Any:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
        "args": args,
    }  # fmt: skip


def kernel(ts: Any, dur: Any, name: str = "k", **args: Any) -> Any:
    return span("kernel", name, ts, dur, 0, 7, **{"device": 0, "stream": 7, **args})


def launch(ts: Any, dur: Any, correlation: Any, pid: Any = 1, tid: Any = 1) -> Any:
    return span("cuda_runtime", "cudaLaunchKernel", ts, dur, pid, tid, correlation=correlation)


def save(path: Path, events: Any, **top: Any) -> Path:
    path.write_text(json.dumps({"traceEvents": events, **top}))
    return path


def read(tmp_path: Path, events: Any, **top: Any) -> Timeline:
    return load(save(tmp_path / "trace.json", events, **top))


def health(timeline: Timeline) -> dict[str, int]:
    return dict(zip(timeline.health.kind.to_list(), timeline.health.count.tolist(), strict=True))


# Rows ------------------------------------------------------------------------------------------


def test_calls_of_a_pytorch_extension(tmp_path: Path) -> None:
    # As of Gaudi: its kernels are "kernel", its calls "privateuse1_runtime".
    call = span("privateuse1_runtime", "Launch", 1, 2, correlation=5)
    got = read(tmp_path, [call, kernel(4, 1, correlation=5)])
    assert got.host_calls.name.to_list() == ["Launch"]
    assert diagnose(got).health == ()


def test_a_launch_without_an_id_is_not_lost(tmp_path: Path) -> None:
    # Written under another name, ids join nothing: that is all that can be said.
    calls = [span("cuda_runtime", "cudaLaunchKernel", t, 1, correlation_id=t) for t in (1, 11)]
    got = read(tmp_path, [*calls, kernel(5, 1, correlation_id=1), kernel(15, 1, correlation_id=2)])
    assert [note.kind for note in diagnose(got).health] == ["operation without launch"]
    got = read(tmp_path, [launch(1, 1, 1), launch(11, 1, 2), kernel(5, 1), kernel(15, 1)])
    assert [note.kind for note in diagnose(got).health] == ["operation without launch"]


def test_ids_of_two_processes_are_not_lost(tmp_path: Path) -> None:
    # Of two ranks merged into one file: which process launched what is not known, no more.
    events = [launch(t, 1, 5, pid=pid) for t, pid in ((1, 100), (2, 200))]
    events += [kernel(5, 1, device=device, correlation=5) for device in (0, 1)]
    got = read(tmp_path, [*events, launch(3, 1, 6, pid=200)])
    notes = {note.kind: note.count for note in diagnose(got).health}
    assert notes == {"operation without launch": 2, "launch without device record": 1}


def test_device_operations(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        [
            launch(1, 2, 10, pid=77),
            kernel(3.001, 1.5, "gemm", correlation=10, **{"graph id": 3, "graph node id": 5}),
            span("gpu_memcpy", "Memcpy DtoH", 6, 1, 2, "stream 9", correlation=11, bytes=64),
            span("gpu_memset", "Memset (Device)", 8, 1, 2, 9, bytes=2**63),
            span("gpu_user_annotation", "draft", 3, 9, 0, 7),
            span("cuda_sync", "Stream Sync", 3, 9, 0, 7),
        ],
    ).device_ops
    assert got.kind.to_list() == ["kernel", "memcpy", "memset"]
    assert got.name.to_list() == ["gemm", "Memcpy DtoH", "Memset (Device)"]
    assert got.start.tolist() == [3_001, 6_000, 8_000]
    assert got.end.tolist() == [4_501, 7_000, 9_000]
    assert got.device.tolist() == [0, 2, 2]
    assert got.stream.tolist() == [7, 9, 9]
    assert got.correlation.tolist() == [10, 11, -1]
    assert got.graph.tolist() == [3, -1, -1]
    assert got.node.tolist() == [5, -1, -1]
    assert got.bytes.tolist() == [-1, 64, -1]
    assert got.process.tolist() == [77, 77, 77]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (12, 12),
        ("12", 12),
        (12.0, 12),
        ("0x1f", 31),
        ("0XFF", 255),
        ("correlation 12", 12),
        ("1.5", -1),
        ("0x" + "f" * 16, -1),
        (2**63, -1),
        ("9" * 30, -1),
        (True, 1),
        (None, -1),
        ([12], -1),
    ],
)
def test_ids_of_any_spelling(tmp_path: Path, said: Any, meant: int) -> None:
    got = read(tmp_path, [launch(1, 2, said), kernel(3, 1, correlation=said)])
    assert got.device_ops.correlation.tolist() == [meant]
    assert got.host_calls.correlation.tolist() == [meant]


def test_category_names_of_old_files(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        [
            span("Operator", "aten::mm", 0, 9, 1, "4093687616"),
            span("Runtime", "cudaLaunchKernel", 1, 1, 1, "4093687616", correlation=1),
            span("Kernel", "k", 2, 1, 0, "stream 7", correlation=1),
            span("Memcpy", "c", 3, 1, 0, "stream 7"),
            span("Memset", "s", 4, 1, 0, "stream 7"),
        ],
    )
    assert got.device_ops.kind.to_list() == ["kernel", "memcpy", "memset"]
    assert got.device_ops.stream.tolist() == [7, 7, 7]
    assert got.host_calls.thread.tolist() == [4093687616]
    assert got.ranges.kind.to_list() == ["op"]


def test_odd_ids_become_unknown(tmp_path: Path) -> None:
    odd = ["12", 2**64, None, [1], {}, True, 1.0, 1.5, "stream 3", "x", "9" * 5000, "-1"]
    got = read(tmp_path, [kernel(i, 1, correlation=value) for i, value in enumerate(odd)])
    wanted = [12, -1, -1, -1, -1, 1, 1, -1, 3, -1, -1, -1]
    assert got.device_ops.correlation.tolist() == wanted


def test_owner_of_an_operation_among_several_processes(tmp_path: Path) -> None:
    calls = [launch(1, 1, 5, pid=11), launch(1, 1, 6, pid=12), launch(1, 1, 7, pid=11)]
    calls.append(launch(2, 1, 7, pid=12))
    ops = [kernel(3 + i, 1, correlation=c) for i, c in enumerate([5, 6, 7, 8])]
    assert read(tmp_path, calls + ops).device_ops.process.tolist() == [11, 12, -1, -1]


def test_ranges_and_frames(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        [
            kernel(1, 1),
            span("user_annotation", "draft at 0x12", 1, 8),
            span("cpu_op", "aten::item", 2, 1),
            span("python_function", "a b/sched(1).py(88): schedule", 3, 1),
            span("python_function", "a b/sched(1).py(88): schedule", 4, 1),
            span("python_function", "<built-in method item of Tensor object at 0x7f1A>", 5, 1),
            span("python_function", "<built-in method item of Tensor object at 0x7f2B>", 6, 1),
            span("python_function", "nn.Module: Qwen_0", 7, 1),
            span("overhead", "Activity Buffer Request", 8, 1, -1, 0),
        ],
    )
    ranges, frames = got.ranges, got.frames
    assert ranges.kind.to_list() == ["overhead", "annotation", "op", *["python"] * 5]
    assert ranges.process.tolist() == [-1, *[1] * 7]
    assert ranges.thread.tolist() == [-1, *[1] * 7]
    assert ranges.frame.tolist() == [-1, -1, -1, 0, 0, -1, -1, -1]
    assert ranges.name.to_list()[1:] == [
        "draft at 0x12",
        "aten::item",
        "a b/sched(1).py(88): schedule",
        "a b/sched(1).py(88): schedule",
        "<built-in method item of Tensor object>",
        "<built-in method item of Tensor object>",
        "nn.Module: Qwen_0",
    ]
    assert (frames.file[0], frames.line.tolist(), frames.function[0]) == (
        "a b/sched(1).py", [88], "schedule",
    )  # fmt: skip


def test_sync_rows_join_their_calls(tmp_path: Path) -> None:
    none = 2**32 - 1
    stream = {"cuda_sync_kind": "Stream Sync", "stream": 7}
    event = {"cuda_sync_kind": "Event Sync", "stream": -1, "wait_on_stream": 7}
    got = read(
        tmp_path,
        [
            kernel(0, 1),
            span("cuda_runtime", "cudaStreamSynchronize", 1, 1, correlation=1),
            span("cuda_runtime", "cudaEventSynchronize", 2, 1, correlation=2),
            span("cuda_runtime", "cudaDeviceSynchronize", 3, 1, correlation=3),
            span("cuda_runtime", "cudaStreamWaitEvent", 4, 1, correlation=4),
            span("cuda_runtime", "cudaStreamSynchronize", 5, 1, correlation=6),
            span("cuda_runtime", "cudaStreamSynchronize", 6, 1, pid=2, correlation=6),
            span("cuda_sync", "", 1, 1, 0, 7, correlation=1, **stream),
            span("cuda_sync", "", 2, 1, 0, -1, correlation=2,
                 wait_on_cuda_event_record_corr_id=9, **event),
            span("cuda_sync", "", 3, 1, 0, -1, correlation=3, stream=none,
                 cuda_sync_kind="Context Sync"),
            span("cuda_sync", "", 4, 1, 0, 9, correlation=4, stream=9, wait_on_stream=none,
                 cuda_sync_kind="Stream Wait Event"),
            span("cuda_sync", "", 5, 1, 0, 7, correlation=5, **stream),
            span("cuda_sync", "", 5, 1, 0, 7, correlation=6, **stream),
        ],
    )  # fmt: skip
    calls = got.host_calls
    assert calls.sync.to_list() == ["stream", "event", "context", "stream wait", "", ""]
    assert calls.stream.tolist() == [7, -1, -1, 9, -1, -1]
    assert calls.event_stream.tolist() == [-1, 7, -1, -1, -1, -1]
    assert calls.event_record.tolist() == [-1, 9, -1, -1, -1, -1]
    assert health(got) == {"sync row without a call": 2}


def test_steps_stay_ranges_too(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        [
            kernel(0, 1),
            span("user_annotation", "ProfilerStep#12", 1, 8),
            span("user_annotation", "ProfilerStep#13", 9, 8),
            span("python_function", "ProfilerStep#14", 9, 8),
        ],
        distributedInfo={"rank": 3, "world_size": 8},
    )
    assert got.steps.number.tolist() == [12, 13]
    assert got.steps.start.tolist() == [1_000, 9_000]
    assert got.steps.end.tolist() == [9_000, 17_000]
    assert got.steps.rank.tolist() == [3, 3]
    assert len(got.ranges) == 3


# Times -----------------------------------------------------------------------------------------


def test_base_time(tmp_path: Path) -> None:
    base = 1_790_857_026_000_000_000
    relative = read(tmp_path, [kernel(5099922431683.653, 1)], baseTimeNanoseconds=base)
    assert relative.device_ops.start.tolist() == [base + 5_099_922_431_683_653]
    assert relative.meta.base_ns == base
    absolute = read(tmp_path, [kernel("1712195495519689.123", 1)], baseTimeNanoseconds=base)
    assert absolute.device_ops.start.tolist() == [1_712_195_495_519_689_123]
    assert absolute.meta.base_ns == 0


def test_times_that_cannot_be_true_are_dropped_and_counted(tmp_path: Path) -> None:
    hour_us = 3_600 * 10**6
    got = read(
        tmp_path,
        [
            launch(2 * hour_us, 1, 1),
            kernel(2 * hour_us + 5, 2, correlation=1),
            kernel(2 * hour_us + 9, 0, "instant"),
            kernel(0, 0),
            kernel(0, 5),
            span("cpu_op", "op", 0, 0),
            kernel(2 * hour_us, -1),
            kernel("1e300", 1),
            kernel(2 * hour_us, 200 * 365 * 24 * hour_us),
            kernel(None, 1),
            kernel(3 * hour_us, "soon"),
            launch("x", 1, 2),
        ],
    )
    assert got.device_ops.name.to_list() == ["k", "instant"]
    assert got.device_ops.correlation.tolist() == [1, -1]
    assert got.host_calls.correlation.tolist() == [1]
    assert health(got) == {
        "unreadable time": 4,
        "time out of range": 1,
        "zero timestamp": 3,
        "negative duration": 1,
    }
    assert "2 device operations, 1 ranges" in got.health.note.to_list()[2]


def test_zero_is_a_time_near_the_beginning(tmp_path: Path) -> None:
    got = read(tmp_path, [kernel(0, 5), kernel(10, 5), kernel(-3, 1)])
    assert got.device_ops.start.tolist() == [-3_000, 0, 10_000]
    assert not len(got.health)


FAR_US = 10**11
"""What a clock was off by (1e14 ns) in https://github.com/pytorch/pytorch/issues/192021."""


def loop(base: float = 0) -> list[Any]:
    """Six kernels, each launched 5 us before it begins."""
    pairs = [
        (launch(base + 10 * k, 2, k), kernel(base + 10 * k + 5, 4, correlation=k))
        for k in range(1, 7)
    ]
    return [event for pair in pairs for event in pair]


@pytest.mark.parametrize("by", [FAR_US, -FAR_US])
@pytest.mark.parametrize("base", [0, 2 * FAR_US, 1.7e15])
def test_operations_days_away_are_dropped(tmp_path: Path, by: float, base: float) -> None:
    events = loop(base)
    for event in [e for e in events if e["cat"] == "kernel"][:2]:
        event["ts"] += by
    got = read(tmp_path, [*events, span("cuda_sync", "Stream Sync", base + by, 1, 0, 7)])
    assert got.device_ops.correlation.tolist() == [3, 4, 5, 6]
    assert got.host_calls.correlation.tolist() == [1, 2, 3, 4, 5, 6]
    assert health(got)["time far from all others"] == 3
    assert "2 device operations, 1 ranges" in got.health.note.to_list()[0]


def test_an_operation_that_goes_on_for_days_is_dropped(tmp_path: Path) -> None:
    # Its end is where it should be, its beginning days before.
    events = loop(2 * FAR_US)
    events[1] |= {"ts": events[1]["ts"] - FAR_US, "dur": FAR_US + 4}
    events[3]["dur"] = FAR_US
    got = read(tmp_path, events)
    assert got.device_ops.correlation.tolist() == [3, 4, 5, 6]
    assert health(got) == {"time far from all others": 2}


def test_host_rows_days_away_are_dropped(tmp_path: Path) -> None:
    stray = [launch(FAR_US, 1, 77), span("cpu_op", "op", -FAR_US, 1)]
    got = read(tmp_path, loop() + stray)
    assert len(got.host_calls) == len(got.device_ops) == 6
    assert health(got) == {"time far from all others": 2}


def test_work_of_another_day_is_work(tmp_path: Path) -> None:
    # Recorded twice into one file, or paused for a night: host and device did something each time.
    later = [launch(FAR_US, 1, 77), kernel(FAR_US + 5, 1, correlation=77)]
    got = read(tmp_path, loop() + later)
    assert got.device_ops.correlation.tolist() == [1, 2, 3, 4, 5, 6, 77]
    assert not len(got.health)


def test_where_no_stretch_has_most_rows_nothing_is_dropped(tmp_path: Path) -> None:
    got = read(tmp_path, [kernel(5, 1), kernel(FAR_US, 1)])
    assert len(got.device_ops) == 2
    assert not len(got.health)


def test_a_range_may_last_for_hours(tmp_path: Path) -> None:
    got = read(tmp_path, [*loop(), span("python_function", "run.py(1): main", 0, FAR_US)])
    assert len(got.ranges) == 1
    assert not len(got.health)


# Meta ------------------------------------------------------------------------------------------


def test_meta(tmp_path: Path) -> None:
    events = [
        span("cuda_runtime", "cudaGraphLaunch", 0, 1, 42, 43, correlation=9),
        kernel(1, 1, device=1, correlation=9),
        kernel(2, 1, device=1, correlation=9),
        {"ph": "M", "name": "process_name", "pid": 42, "tid": 0, "args": {"name": "engine"}},
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "engine"}},
        {"ph": "M", "name": "thread_name", "pid": 42, "tid": "43", "args": {"name": "main"}},
        {"ph": "M", "name": "process_labels", "pid": 42, "tid": 0, "args": {"labels": "CPU"}},
        {"ph": "M", "name": "process_sort_index", "pid": "Spans", "args": {"sort_index": 5}},
    ]
    meta = read(
        tmp_path,
        events,
        deviceProperties=[
            {"id": 0, "name": "A"},
            {"id": 1, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132},
        ],
        distributedInfo={"backend": "nccl", "rank": 2, "world_size": 4},
        cuda_runtime_version=13000,
        cuda_driver_version=12090,
        cupti_version=130001,
        hip_runtime_version=70253211,
        schemaVersion=1,
        with_stack=1,
        traceName="/tmp/x.json",
    ).meta
    assert (meta.source, meta.format, meta.capture) == (
        "trace.json", "PyTorch profiler", "torch.profiler",
    )  # fmt: skip
    assert meta.level == "node"
    assert [(d.rank, d.index, d.name, d.memory, d.multiprocessors) for d in meta.devices] == [
        (2, 1, "NVIDIA H200", 150109880320, 132)
    ]
    assert {(t.process, t.thread): t.name for t in meta.threads} == {
        (42, -1): "engine", (42, 43): "main",
    }  # fmt: skip
    assert meta.versions == {
        "CUDA runtime": "13.0",
        "CUDA driver": "12.9",
        "CUPTI": "130001",
        "HIP runtime": "7.2.53211",
        "trace schema": "1",
    }
    assert meta.world_size == 4
    assert meta.about == {"with_stack": "1", "traceName": "/tmp/x.json"}


@pytest.mark.parametrize(
    ("info", "rank", "world"),
    [
        ({"rank": 1}, 1, 1),
        ("{'backend': 'nccl', 'rank': 3, 'world_size': 8, 'pg_config': [{'pg_na", 3, 8),
        ("{'backend': 'nccl', 'ra", 0, 1),
        ({"rank": None, "world_size": []}, 0, 1),
        (None, 0, 1),
        ([1], 0, 1),
    ],
)
def test_rank(tmp_path: Path, info: Any, rank: int, world: int) -> None:
    got = read(
        tmp_path, [kernel(0, 1), launch(0, 1, 1), span("cpu_op", "o", 0, 1)], distributedInfo=info
    )
    assert got.meta.world_size == world
    for table in (got.device_ops, got.host_calls, got.ranges):
        assert table.rank.tolist() == [rank]


def test_one_listed_device_under_another_index(tmp_path: Path) -> None:
    got = read(tmp_path, [kernel(0, 1, device=9)], deviceProperties=[{"id": 0, "name": "MI300X"}])
    assert [(d.index, d.name) for d in got.meta.devices] == [(9, "MI300X")]
    odd = read(tmp_path, [kernel(0, 1)], deviceProperties="cut short")
    assert odd.meta.devices == ()
