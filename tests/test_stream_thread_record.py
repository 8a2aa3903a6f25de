"""What the stream thread's recorder makes of calls and operations, on known sequences."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bubblescope.targets.ling import program  # noqa: E402
from bubblescope.targets.ling.recorder import StreamThreadBackend  # noqa: E402
from bubblescope.targets.ling.stream_thread import StreamThread  # noqa: E402
from bubblescope.timeline import DeviceOps, Frames, HostCalls, Ranges, Table  # noqa: E402

OFFSET = 1_000_000


class NoDevice:
    """Stands for a device whose calls the test makes by hand."""

    recorder: Any = None

    def drain(self) -> None:
        pass


@pytest.fixture
def device() -> Iterator[StreamThread]:
    made = StreamThread()
    yield made
    made.close()


def rows(table: Table, *names: str) -> list[tuple[Any, ...]]:
    columns = [getattr(table, n) for n in names]
    lists = [c.to_list() if hasattr(c, "to_list") else c.tolist() for c in columns]
    return list(zip(*lists, strict=True))


def test_the_tables_of_a_sequence_made_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "clock_offset_ns", lambda: OFFSET)
    backend = StreamThreadBackend(NoDevice)  # type: ignore[arg-type]
    backend.start()
    graph: Any = SimpleNamespace(number=3, program=SimpleNamespace(names=("mm", "add")))
    backend.call("cpuMemcpyAsync", 10, 12, 1)
    backend.call("cpuGraphLaunch", 20, 25, 2)
    backend.call("cpuStreamSynchronize", 30, 99, 3, sync="stream", stream=0)
    backend.call(
        "cpuEventSynchronize", 100, 101, 4, sync="event", stream=1, event_stream=1, event_record=9
    )
    backend.range("step", 5, 110)
    backend.operation(0, 1, "memcpy", "Memcpy HtoD (Pinned -> Device)", 13, 15, 64)
    backend.replay(1, 2, graph, torch.tensor([40, 50, 51, 60]), 75)
    tables = backend.stop()

    process, thread = os.getpid(), threading.get_native_id()
    assert tables.device_ops == DeviceOps.build(
        3,
        rank=0,
        process=process,
        device=0,
        stream=[0, 1, 1],
        kind=["memcpy", "kernel", "kernel"],
        name=["Memcpy HtoD (Pinned -> Device)", "mm", "add"],
        start=[OFFSET + 13, OFFSET + 40, OFFSET + 51],
        end=[OFFSET + 15, OFFSET + 50, OFFSET + 60],
        correlation=[1, 2, 2],
        graph=[-1, 3, 3],
        node=[-1, 0, 1],
        bytes=[64, -1, -1],
    )
    assert tables.host_calls == HostCalls.build(
        4,
        rank=0,
        process=process,
        thread=thread,
        name=["cpuMemcpyAsync", "cpuGraphLaunch", "cpuStreamSynchronize", "cpuEventSynchronize"],
        start=[OFFSET + t for t in (10, 20, 30, 100)],
        end=[OFFSET + t for t in (12, 25, 99, 101)],
        correlation=[1, 2, 3, 4],
        frame=[0, 1, 2, 3],
        status=0,
        sync=["", "", "stream", "event"],
        stream=[-1, -1, 0, 1],
        event_stream=[-1, -1, -1, 1],
        event_record=[-1, -1, -1, 9],
    )
    assert tables.ranges == Ranges.build(
        1,
        rank=0,
        process=process,
        thread=thread,
        kind="annotation",
        name="step",
        start=OFFSET + 5,
        end=OFFSET + 110,
        frame=-1,
    )
    assert set(tables.frames.file.to_list()) == {__file__}
    assert tables.about["interpreter lock"].startswith("the device thread waited 0.0 us (median)")
    assert backend.stop().device_ops == DeviceOps.build(0)  # what was handed over is gone


def test_calls_carry_the_line_that_made_them(device: StreamThread) -> None:
    backend = StreamThreadBackend(lambda: device)
    backend.start()
    here = Path(__file__).read_text().splitlines()
    with device.annotate("outer"):
        device.launch("one", lambda: None)
        device.synchronize()
    tables = backend.stop()
    frames: Frames = tables.frames
    for call, _, row in rows(tables.host_calls, "name", "start", "frame"):
        text = here[int(frames.line[row]) - 1].strip()
        wanted = {"cpuLaunchKernel": "device.launch(", "cpuStreamSynchronize": "device.synchronize"}
        assert text.startswith(wanted[call])
        assert frames.function[row] == "test_calls_carry_the_line_that_made_them"


def test_every_call_of_the_device_by_its_name_and_what_it_waits_for(device: StreamThread) -> None:
    other, x = device.new_stream(), torch.zeros(4)
    graph = device.capture("g", lambda: x.add_(1).mul_(2))
    device.launch("before", lambda: None)  # queued before the recording: leaves nothing
    backend = StreamThreadBackend(lambda: device)
    backend.start()
    device.copy(x, torch.ones(4), "HtoD")
    device.replay(graph)
    event = device.record()
    device.wait(event, other)
    device.replay(graph, other)
    done = device.record(other)
    device.synchronize_event(done)
    device.synchronize()
    tables = backend.stop()
    device.launch("after", lambda: None)
    assert device.recorder is None

    calls, ops = tables.host_calls, tables.device_ops
    e, d = event.correlation, done.correlation
    assert rows(calls, "name", "sync", "stream", "event_stream", "event_record") == [
        ("cpuMemcpyAsync", "", -1, -1, -1),
        ("cpuGraphLaunch", "", -1, -1, -1),
        ("cpuEventRecord", "", -1, -1, -1),
        ("cpuStreamWaitEvent", "stream wait", other, 0, e),
        ("cpuGraphLaunch", "", -1, -1, -1),
        ("cpuEventRecord", "", -1, -1, -1),
        ("cpuEventSynchronize", "event", other, other, d),
        ("cpuStreamSynchronize", "stream", 0, -1, -1),
    ]
    by_name = dict(zip(calls.correlation.tolist(), calls.name.to_list(), strict=True))
    assert len(by_name) == len(calls)  # each call has an id of its own
    assert by_name[e] == by_name[d] == "cpuEventRecord"
    launches = [by_name[c] for c in ops.correlation.tolist()]
    assert sorted(launches) == ["cpuGraphLaunch"] * 4 + ["cpuMemcpyAsync"]
    assert sorted(rows(ops, "stream", "name", "kind", "bytes")) == [
        (0, "Memcpy HtoD (Pinned -> Device)", "memcpy", 16),
        (0, "add", "kernel", -1),
        (0, "mul", "kernel", -1),
        (other, "add", "kernel", -1),
        (other, "mul", "kernel", -1),
    ]
    begun = dict(zip(calls.correlation.tolist(), calls.start.tolist(), strict=True))
    early = ops.start - np.array([begun[c] for c in ops.correlation.tolist()])
    assert early.min() >= 0
    first, second = (ops.stream == 0), (ops.stream == other)
    assert ops.end[first].max() <= ops.start[second].min()  # the event was kept
    returned = dict(zip(calls.name.to_list(), calls.end.tolist(), strict=True))
    assert returned["cpuEventSynchronize"] >= ops.end.max()
