from __future__ import annotations

from types import SimpleNamespace as Record

import numpy as np
import pytest

from bubblescope.capture import frames
from bubblescope.capture.cupti import calls, records
from bubblescope.capture.cupti.buffers import Buffers
from bubblescope.capture.cupti.demangle import demangle
from bubblescope.capture.cupti.records import NONE, Window, make
from bubblescope.capture.cupti.subscriber import Subscriber, _CallbackData, held
from bubblescope.capture.pauses import Pauses
from bubblescope.diagnose import diagnose
from bubblescope.timeline import Meta, Timeline

RUNTIME = {211: "cudaLaunchKernel", 311: "cudaGraphLaunch", 131: "cudaStreamSynchronize"}
RUNTIME |= {41: "cudaMemcpyAsync", 147: "cudaStreamWaitEvent", 135: "cudaEventRecord"}
DRIVER = {652: "cuLaunchKernelEx"}


def window(begin=0, end=1_000_000, **more) -> Window:
    return Window(begin, end, 41, RUNTIME, DRIVER, **more)


def call(cbid, start, end, correlation, kind=records.RUNTIME, status=0, thread=42):
    return Record(
        kind=kind,
        cbid=cbid,
        start=start,
        end=end,
        correlation_id=correlation,
        return_value=status,
        thread_id=thread,
        process_id=41,
    )


def kernel(start, end, correlation, graph=0, node=0, name="_Z3addPf", stream=7):
    return Record(
        kind=records.KERNEL,
        device_id=0,
        stream_id=stream,
        name=name,
        start=start,
        end=end,
        correlation_id=correlation,
        graph_id=graph,
        graph_node_id=node,
        grid_x=84,
        grid_y=2,
        grid_z=1,
        block_x=128,
        block_y=1,
        block_z=1,
    )


def graph(start, end, correlation, number=5):
    return Record(
        kind=records.GRAPH_TRACE,
        device_id=0,
        stream_id=7,
        start=start,
        end=end,
        correlation_id=correlation,
        graph_id=number,
    )


def copy(start, end, correlation, size=4):
    return Record(
        kind=records.MEMCPY,
        device_id=0,
        stream_id=7,
        copy_kind=2,
        src_kind=3,
        dst_kind=2,
        start=start,
        end=end,
        correlation_id=correlation,
        graph_id=0,
        graph_node_id=0,
        bytes=size,
    )


def sync(correlation, kind=3, stream=7, event=NONE, event_sync=0):
    return Record(
        kind=records.SYNCHRONIZATION,
        correlation_id=correlation,
        type=kind,
        stream_id=stream,
        cuda_event_id=event,
        cuda_event_sync_id=event_sync,
    )


def marker(at, number, flags, name=""):
    where = Record(pt=Record(thread_id=42, process_id=41))
    return Record(
        kind=records.MARKER,
        timestamp=at,
        id=number,
        flags_=flags,
        name=name,
        domain="",
        object_id=where,
    )


def test_a_step_of_every_kind_becomes_rows():
    made = make(
        [
            call(311, 100, 120, 1),
            graph(130, 900, 1),
            call(211, 125, 128, 2),
            kernel(905, 910, 2),
            call(652, 130, 133, 3, kind=records.DRIVER),
            kernel(912, 915, 3, graph=6, node=9),
            call(41, 140, 150, 4),
            copy(920, 930, 4),
            call(131, 150, 950, 5),
            sync(5),
        ],
        window(),
    )
    ops, host = made.device_ops, made.host_calls
    assert sorted(ops.kind.to_list()) == ["graph", "kernel", "kernel", "memcpy"]
    by_name = dict(zip(ops.name.to_list(), range(len(ops)), strict=True))
    assert {"graph 5", "add(float*)", "Memcpy DtoH (Device -> Pinned)"} <= set(by_name)
    assert ops.graph[by_name["graph 5"]] == 5
    assert ops.bytes[by_name["Memcpy DtoH (Device -> Pinned)"]] == 4
    assert sorted(ops.graph.tolist()) == [-1, -1, 5, 6]
    assert sorted(ops.node.tolist()) == [-1, -1, -1, 9]
    assert sorted(ops.grid.to_list()) == ["", "", "84,2,1", "84,2,1"]
    assert sorted(ops.block.to_list()) == ["", "", "128,1,1", "128,1,1"]
    assert set(host.name.to_list()) == {*RUNTIME.values(), *DRIVER.values()} - {
        "cudaStreamWaitEvent",
        "cudaEventRecord",
    }
    at = host.name.to_list().index("cudaStreamSynchronize")
    assert (host.sync[at], host.stream[at]) == ("stream", 7)
    timeline = Timeline.of(Meta("made", "made"), device_ops=ops, host_calls=host)
    diagnosis = diagnose(timeline)
    assert diagnosis.total("unknown_ns") == 0
    assert diagnosis.total("busy_ns") == 770 + 5 + 3 + 10


def test_an_event_wait_names_the_call_that_recorded_the_event():
    event = Record(
        kind=records.CUDA_EVENT, event_id=1, cuda_event_sync_id=9, stream_id=25, correlation_id=1
    )
    made = make(
        [event, call(135, 10, 12, 1), call(147, 20, 22, 2), sync(2, 2, 7, event=1, event_sync=9)],
        window(),
    )
    host = made.host_calls
    at = host.name.to_list().index("cudaStreamWaitEvent")
    row = host.sync[at], host.stream[at], host.event_stream[at], host.event_record[at]
    assert row == ("stream wait", 7, 25, 1)


def test_only_what_belongs_to_the_window_stays_and_unfinished_work_is_counted():
    made = make(
        [
            call(211, 10, 12, 1),
            kernel(20, 90, 1),  # ended before
            call(211, 100, 110, 2),
            kernel(120, 130, 2),
            call(211, 180, 190, 3),
            kernel(0, 0, 3),  # never finished
            call(211, 200, 210, 4),  # after
        ],
        window(95, 200),
    )
    assert made.host_calls.correlation.tolist() == [2, 3]
    assert made.device_ops.correlation.tolist() == [2]
    assert made.unfinished == 1


def test_times_are_moved_to_the_host_clock():
    made = make([call(211, 100, 110, 1), kernel(120, 130, 1)], window(shift=1000))
    assert made.host_calls.start.tolist() == [1100]
    assert made.device_ops.end.tolist() == [1130]


def test_call_sites_are_joined_by_correlation_id():
    code = test_call_sites_are_joined_by_correlation_id.__code__
    made = make(
        [call(131, 100, 110, 1), call(131, 120, 130, 2), call(131, 140, 150, 3)],
        window(sites=[(3, code, 77), (1, code, 76)]),
    )
    assert made.host_calls.frame.tolist() == [1, -1, 0]
    assert made.frames.line.tolist() == [77, 76]
    assert made.frames.file[0] == __file__


def test_ranges_nest_and_open_ones_are_left_out():
    made = make(
        [
            marker(10, 1, 2, "step"),
            marker(20, 2, 2, "inner"),
            marker(30, 2, 4),
            marker(40, 1, 4),
            marker(50, 3, 2, "open"),
            marker(60, 4, 1, "instant"),
        ],
        window(),
    )
    rows = list(
        zip(
            made.ranges.name.to_list(),
            made.ranges.start.tolist(),
            made.ranges.end.tolist(),
            strict=True,
        )
    )
    assert rows == [("inner", 20, 30), ("step", 10, 40)]


def test_cupti_s_own_time_is_overhead_and_module_loading_is_not():
    own = [
        Record(kind=records.OVERHEAD, overhead_kind=k, start=10, end=20)
        for k in (7 << 16, 5 << 16, 1)
    ]
    made = make(own, window())
    assert made.ranges.name.to_list() == ["CUPTI buffer request"]
    assert made.ranges.kind.to_list() == ["overhead"]


def test_nothing_recorded_makes_empty_tables():
    made = make([], window())
    assert [len(t) for t in (made.device_ops, made.host_calls, made.ranges, made.frames)] == [0] * 4


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        ("cudaLaunchKernel", True),
        ("cuLaunchKernelEx", True),
        ("cudaGraphLaunch", True),
        ("cudaMemcpyAsync", True),
        ("cudaMemsetAsync", True),
        ("cudaStreamBeginCapture", True),
        ("cudaEventQuery", True),
        ("cuMemAlloc", True),
        ("cudaGetDevice", False),
        ("cudaPeekAtLastError", False),
        ("cuCtxGetCurrent", False),
    ],
)
def test_calls_that_say_where_time_went_are_recorded(name, recorded):
    assert calls.wanted(name) is recorded


def test_ids_lose_the_suffixes_of_the_enums():
    fake = Record(
        RuntimeApiTraceCbid=Record(
            __members__={"INVALID": 0, "cudaGraphLaunch_ptsz_v10000": 514, "SIZE": 900}
        ),
        DriverApiTraceCbid=Record(__members__={"cuLaunchKernel_ptsz": 442}),
    )
    assert calls.ids(fake) == ({514: "cudaGraphLaunch"}, {442: "cuLaunchKernel"})


def test_buffers_stop_at_the_limit_and_say_so_once():
    said: list[int] = []
    buffers = Buffers(4096, limit=5, full=lambda: said.append(1))
    assert buffers.requested() == (4096, 0)
    buffers.completed([1, 2, 3])
    assert not said
    buffers.completed([4, 5, 6])
    buffers.completed([7])
    assert said == [1]
    assert buffers.requested() == (0, 0)
    assert buffers.take() == [1, 2, 3, 4, 5, 6, 7]
    assert buffers.take() == []
    assert [n for _, n in buffers.completions()] == [3, 3, 1]
    buffers.clear()
    assert buffers.requested() == (4096, 0)


def test_names_are_demangled_once_they_are_mangled():
    assert demangle("_ZN2at6nativeEv") == "at::native()"
    assert demangle("_Znot a name") == "_Znot a name"
    assert demangle("triton_red_fused_0") == "triton_red_fused_0"


def test_frames_of_frameworks_are_passed_over():
    assert frames.is_framework("/x/site-packages/torch/_tensor.py")
    assert frames.is_framework("<frozen importlib._bootstrap>")
    assert not frames.is_framework("<string>")
    assert not frames.is_framework("/x/site-packages/sglang/srt/managers/scheduler.py")


def test_the_holder_of_cupti_is_named_where_it_names_itself():
    assert "by 'nsys'" in held("CUPTI for nsys", False)
    assert "torch.profiler" in held("CUPTI for <not provided>", True)


def test_collections_are_timed():
    import gc

    pauses = Pauses()
    pauses.open()
    gc.collect()
    pauses.close()
    gc.collect()
    (row,) = [r for r in pauses.rows if r[1].endswith("(generation 2)")]
    assert row[3] >= row[2] > 0


def test_columns_are_int64():
    made = make(
        [call(211, 2**60, 2**60 + 5, 1), kernel(2**60 + 9, 2**60 + 10, 1)], window(0, 2**62)
    )
    assert made.device_ops.start.dtype == np.int64
    assert made.host_calls.start.tolist() == [2**60]


def test_what_is_raised_in_a_callback_is_raised_again_and_other_hooks_still_run():
    import ctypes
    import sys
    import time

    subscriber = Subscriber(None)
    subscriber.watch([])
    try:
        # Called with a call that is no call: raises where ctypes can only print.
        called: list[object] = []
        subscriber._hook = called.append
        bad = ctypes.CFUNCTYPE(None)(lambda: 1 / 0)
        bad()
        assert len(called) == 1
        with pytest.raises(ValueError, match="NULL pointer access"):
            _callback_with_nothing(subscriber, time.sleep)
        assert len(called) == 1
    finally:
        subscriber.unwatch()
    assert sys.unraisablehook != subscriber._unraisable


def _callback_with_nothing(subscriber, sleep):
    subscriber._called(None, 0, 0, None)
    for _ in range(200):
        sleep(0.005)


def test_a_frame_in_a_callback_is_known():
    import sys

    subscriber = Subscriber(None)
    assert not subscriber.in_callback(sys._getframe())
    data = _CallbackData(site=0, correlation_id=5)
    subscriber._called(None, 0, 0, data)
    ((correlation, code, line),) = subscriber.sites
    assert correlation == 5
    assert code is sys._getframe().f_code
    assert line > 0
