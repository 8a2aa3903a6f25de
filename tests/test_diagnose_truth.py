"""Synthetic recordings with hand-reasoned truth: exactly the expected ns in each part.

The figures are reasoned in the comments from the times in the recording, never from code. Each
recording also goes through the oracle, which keeps the oracle honest. Graphs are in
test_diagnose_graphs.py, reads and their prices in test_diagnose_prices.py.
"""

from __future__ import annotations

import pytest

from bubblescope.diagnose.model import DeviceDiagnosis, Doing, Part
from tests.agreement import only, parts, parts_of, told
from tests.synthetic import TraceBuilder


def doings(device: DeviceDiagnosis) -> dict[str, int]:
    """What fills the host gaps, by label."""
    p = device.pieces
    total: dict[str, int] = {}
    for part, doing, start, end in zip(p.part, p.doing, p.start, p.end, strict=True):
        if part == Part.HOST_GAP:
            label = Doing(int(doing)).label
            total[label] = total.get(label, 0) + int(end - start)
    return total


def queued(*ops: tuple[int, int], stream: int = 7) -> TraceBuilder:
    """Kernels (start, run) all launched in the first few ns: every gap is the device's own."""
    trace = TraceBuilder().on(stream=stream)
    for i, (start, run) in enumerate(ops):
        trace.launch(f"k{i}", at=2 * i, dur=1, start=start, run=run)
    return trace


# -- the device's own gaps ----------------------------------------------------------------------


def test_no_nanosecond_is_lost_to_rounding():
    # Gaps of 1, 7 and 999 ns between kernels of 100, 101, 103 and 1 ns.
    device = only(queued((100, 100), (201, 101), (309, 103), (1411, 1)))
    assert parts_of(device) == {"device gap": 1 + 7 + 999}
    assert (device.busy_ns, device.window_ns) == (305, 1312)


def test_two_streams_idle_only_where_both_are():
    # Stream 7: [100, 200) [400, 500); stream 9: [150, 250) [350, 420). Dry in [250, 350) only.
    trace = queued((100, 100), (400, 100))
    trace.on(stream=9).launch("x", 4, 1, 150, 100).launch("y", 6, 1, 350, 70)
    device = only(trace)
    assert parts_of(device) == {"device gap": 100}
    assert (device.busy_ns, device.overlapped_ns) == (300, 50 + 20)


def test_kernels_that_overlap_on_one_stream_are_counted_once():
    # Programmatic dependent launch: the second is resident 20 ns before the first ends.
    device = only(queued((100, 100), (180, 120)))
    assert (device.busy_ns, device.overlapped_ns, parts_of(device)) == (200, 20, {})


def test_an_operation_of_no_length_splits_a_gap():
    # It is launched when the device is dry already, at 120, so that [100, 150) is the host's:
    # 20 gap, 10 call, 20 latency. [150, 300) ends with a kernel queued long before.
    trace = queued((0, 100), (300, 100))
    trace.on(stream=9).launch("nothing", at=120, dur=10, start=150, run=0)
    assert parts(trace) == {
        "host gap": 20,
        "launch call": 10,
        "launch latency": 20,
        "device gap": 150,
    }


def test_operations_of_no_length_alone():
    device = only(queued((100, 0)))
    assert (device.window_ns, device.busy_ns, parts_of(device)) == (0, 0, {})


@pytest.mark.parametrize(
    ("gaps", "unknown"),
    [
        ((1_000, 1_000, 1_000, 100_000), 0),  # not over 100 us
        ((1_000, 1_000, 1_000, 100_001), 100_001),
        ((3_000, 3_000, 150_000), 0),  # 50 times the median, not over it
        ((3_000, 3_000, 150_001), 150_001),
        ((1_000, 2_000, 4_001, 150_025), 0),  # the median is 3,000.5: 50 times it is 150,025
        ((1_000, 2_000, 4_001, 150_026), 150_026),
        ((400_000,), 0),  # its own median
    ],
)
def test_queued_but_not_started(gaps, unknown):
    ops, at = [(10_000, 500)], 10_500
    for gap in gaps:
        ops.append((at + gap, 500))
        at += gap + 500
    expected = {"device gap": sum(gaps) - unknown} | ({"unknown": unknown} if unknown else {})
    assert parts(queued(*ops)) == expected


# -- late hosts ---------------------------------------------------------------------------------


def test_launch_call_and_latency():
    # Dry at 120. The call runs [100, 150): 30 of the bubble; the kernel starts at 190: 40 more.
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=100)
    trace.launch("b", at=100, dur=50, start=190, run=10)
    assert parts(trace) == {"launch call": 30, "launch latency": 40}


@pytest.mark.parametrize(
    ("latency", "unknown"),
    # Three launches reach an empty device 2,000 after their return, the fourth later: over 100 us
    # and over 50 times the median, 2,000, it is held by something that was not recorded.
    [(100_000, False), (100_001, True), (463_000_000, True)],
)
def test_launched_onto_an_empty_device_and_not_started(latency, unknown):
    trace = TraceBuilder().launch("first", at=0, dur=10, start=1_000, run=1_000)
    for k, wait in enumerate((2_000, 2_000, 2_000, latency), start=1):
        at = 10_000 * k
        trace.launch("k", at=at, dur=10, start=at + 10 + wait, run=1_000)
    # Dry at 2,000 and 1,000 after each kernel's start: 8,000, then 10,000 - 10 - 2,000 - 1,000.
    gaps = {"host gap": 8_000 + 3 * 6_990, "launch call": 4 * 10}
    if unknown:
        assert parts(trace) == gaps | {"launch latency": 6_000, "unknown": latency}
    else:
        assert parts(trace) == gaps | {"launch latency": 6_000 + latency}


def test_a_graph_may_take_long_to_start():
    # Its upload can: 463 ms from the return of its launch stay launch latency.
    trace = TraceBuilder().launch("first", at=0, dur=10, start=1_000, run=1_000)
    trace.launch("k", at=10_000, dur=10, start=12_010, run=1_000)
    trace.graph(at=20_000, dur=10, nodes=[("a", 463_020_010, 10)])
    assert parts(trace) == {
        "host gap": 8_000 + 6_990,
        "launch call": 20,
        "launch latency": 2_000 + 463_000_000,
    }


def test_a_call_that_returns_as_the_device_runs_dry_was_in_time():
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=100)
    trace.launch("b", at=100, dur=20, start=190, run=10)
    assert parts(trace) == {"device gap": 70}


def late(gap_end: int = 5_000) -> TraceBuilder:
    """Dry from 1,000; the next launch is called at `gap_end` for 100 ns, its kernel at once."""
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=980)
    return trace.launch("b", at=gap_end, dur=100, start=gap_end + 100, run=10)


def test_host_gap_goes_to_the_innermost_record():
    # [1000, 1500) nothing; step [1500, 4500) holds op [2000, 4000), which holds cudaFree
    # [2500, 3000) and cudaMalloc [3000, 3200) and an attribute query [3200, 3300); a Python
    # frame [4200, 4300) inside the step.
    trace = late().range("annotation", "step", 1_500, 3_000)
    trace.range("op", "aten::empty", 2_000, 2_000).range("python", "f.py(3): f", 4_200, 100)
    trace.call("cudaFree", 2_500, 500).call("cudaMalloc", 3_000, 200)
    trace.call("cudaDeviceGetAttribute", 3_200, 100)
    device = only(trace)
    assert parts_of(device) == {"host gap": 4_000, "launch call": 100}
    assert doings(device) == {
        "nothing recorded": 500 + 500,  # [1000, 1500) and [4500, 5000)
        "annotation": 500 + 200 + 200,  # [1500, 2000), [4000, 4200) and [4300, 4500)
        "framework op": 500 + 700,  # [2000, 2500) and [3300, 4000)
        "allocator": 500 + 200,
        "other CUDA call": 100,
        "Python frame": 100,
    }


def test_profiler_overhead_is_matched_by_time():
    # It names no thread. The call [2500, 2600) inside it keeps its own time.
    trace = late().range("op", "aten::mm", 1_000, 3_000).call("cudaMalloc", 2_500, 100)
    trace.overhead("Activity Buffer Request", 2_000, 1_000)
    assert doings(only(trace)) == {
        "framework op": 1_000 + 1_000,  # [1000, 2000) and [3000, 4000)
        "profiler overhead": 900,
        "allocator": 100,
        "nothing recorded": 1_000,
    }


def test_overhead_of_another_rank_is_not_ours():
    trace = late()
    trace.on(rank=1).overhead("Activity Buffer Request", 2_000, 1_000)
    assert doings(only(trace)) == {"nothing recorded": 4_000}


def test_records_of_another_thread_are_not_ours():
    trace = late()
    trace.on(thread=9).range("op", "aten::mm", 1_000, 4_000).call("cudaMalloc", 1_000, 4_000)
    assert doings(only(trace)) == {"nothing recorded": 4_000}


def test_waiting_for_another_thread():
    # The launching thread waits for a lock in [2000, 4000), inside a frame [1500, 4500).
    trace = late().range("python", "queue.py(154): get", 1_500, 3_000)
    lock = "<built-in method acquire of _thread.lock object at 0x7ce286400000>"
    trace.range("python", lock, 2_000, 2_000)
    device = only(trace)
    assert parts_of(device) == {"host gap": 2_000, "host wait": 2_000, "launch call": 100}
    assert doings(device) == {"Python frame": 500 + 500, "nothing recorded": 1_000}


def test_a_read_on_the_thread_waited_for_is_named_and_not_charged():
    # Thread 9 reads in [2500, 3900), while the launching thread waits; thread 8 did before it.
    trace = late()
    trace.range("python", "<built-in method acquire of _thread.lock object>", 2_000, 2_000)
    trace.on(thread=9).range("op", "aten::item", 2_400, 1_600).sync(at=2_500, dur=1_400)
    trace.on(thread=8).range("op", "aten::nonzero", 1_400, 600).sync(at=1_500, dur=500)
    d = told(trace)
    (finding,) = (f for f in d.findings if f.kind == "host wait")
    assert finding.why.endswith("It may be for cudaStreamSynchronize in aten::item.")
    assert [r.exposed_idle_ns for r in d.reads] == [0, 0]


# -- what is not known --------------------------------------------------------------------------


def test_no_launch_known():
    # The orphan ends [100, 200); the kernel after it was queued, and stays a device gap.
    trace = queued((0, 100), (250, 50))
    trace.orphan("orphan", start=200, run=20)
    assert parts(trace) == {"unknown": 100, "device gap": 30}


def test_unknown_only_where_a_launch_was_lost():
    # A launch without a kernel lies between the launches of k0 and k1: [200, 300) is unknown.
    # k2 was launched late after k1, with nothing lost between: 50 gap, 10 call, 40 latency.
    trace = TraceBuilder().launch("k0", at=0, dur=10, start=100, run=100)
    trace.lost(at=50, dur=5).launch("k1", at=60, dur=10, start=300, run=50)
    trace.launch("k2", at=400, dur=10, start=450, run=50)
    assert parts(trace) == {
        "unknown": 100,
        "host gap": 50,
        "launch call": 10,
        "launch latency": 40,
    }


def test_lost_graph_launch():
    trace = TraceBuilder().launch("k0", at=0, dur=10, start=100, run=100)
    trace.lost(at=50, dur=5, call="cudaGraphLaunch").launch("k1", at=60, dur=10, start=300, run=50)
    assert parts(trace) == {"unknown": 100}


def test_a_second_record_of_a_launch_is_not_lost():
    # The driver's call shares the id of the runtime's, whose kernel is there.
    trace = TraceBuilder().launch("k0", at=0, dur=10, start=100, run=100)
    trace.launch("k1", at=60, dur=10, start=300, run=50)
    trace.call("cuLaunchKernel", 20, 5, correlation=trace.calls[0]["correlation"])
    assert parts(trace) == {"device gap": 100}


def test_a_driver_call_inside_a_launch_is_not_lost():
    # Whatever else the runtime called in it.
    trace = TraceBuilder().launch("k0", at=0, dur=10, start=100, run=100)
    trace.launch("k1", at=60, dur=10, start=300, run=50)
    trace.call("cudaGetLastError", 61, 1).call("cuLaunchKernel", 64, 5)
    trace.launch("k2", at=80, dur=10, start=360, run=10)
    assert parts(trace) == {"device gap": 110}


def test_a_launch_inside_another_kind_of_call_is_lost():
    # A copy's call is no launch whose second record this could be.
    trace = TraceBuilder().launch("k0", at=0, dur=10, start=100, run=100)
    trace.copy("DtoH", at=20, dur=30, start=200, run=20, memory="Pinned").lost(at=25, dur=5)
    trace.launch("k1", at=60, dur=10, start=300, run=50)
    assert parts(trace) == {"unknown": 80}


def test_a_lost_copy_is_not_a_lost_kernel():
    # Not every copy makes an operation, so a missing one proves nothing.
    trace = TraceBuilder().launch("k0", at=0, dur=10, start=100, run=100)
    trace.lost(at=50, dur=5, call="cudaMemcpyAsync").launch("k1", at=60, dur=10, start=300, run=50)
    assert parts(trace) == {"device gap": 100}


def test_launches_during_capture_run_nothing():
    trace = TraceBuilder().launch("k0", at=0, dur=5, start=100, run=100)
    trace.call("cudaStreamBeginCapture", 10, 5).lost(20, 5).call("cudaStreamEndCapture", 30, 5)
    trace.launch("k1", at=60, dur=10, start=300, run=50)
    assert parts(trace) == {"device gap": 100}


def test_launch_lost_in_another_process_or_rank():
    trace = queued((100, 100), (300, 50))
    trace.on(process=1).lost(at=1, dur=1)
    trace.on(rank=1).lost(at=1, dur=1)
    assert parts(trace) == {"device gap": 100}


# -- streams, devices and ranks -----------------------------------------------------------------


def awaited_elsewhere(end: int) -> TraceBuilder:
    """Device 1 works [100, end) on stream 20; device 0 [50, 500), then b, after an event."""
    trace = TraceBuilder()
    other = trace.on(device=1, stream=20)
    other.launch("far", at=0, dur=5, start=100, run=end - 100).record("done", at=6, dur=2)
    trace.launch("a", at=10, dur=5, start=50, run=450)
    trace.stream_wait("done", at=20, dur=2)
    return trace


def test_waiting_for_an_event_of_another_device():
    # b was queued at 35 and the event's work ends at 5,000: 4,500 of wait, 30 of the device.
    trace = awaited_elsewhere(5_000).launch("b", at=30, dur=5, start=5_030, run=10)
    near, far = told(trace).devices
    assert parts_of(near) == {"stream wait": 4_500, "device gap": 30}
    assert parts_of(far) == {}


def test_awaited_work_that_outlasts_the_bubble():
    trace = awaited_elsewhere(9_000).launch("b", at=30, dur=5, start=5_030, run=10)
    assert parts_of(told(trace).devices[0]) == {"stream wait": 4_530}


def test_awaited_work_that_was_done_before():
    trace = awaited_elsewhere(500).launch("b", at=30, dur=5, start=530, run=10)
    assert parts_of(told(trace).devices[0]) == {"device gap": 30}


def test_a_wait_holds_the_next_operation_of_its_stream_only():
    # b takes the wait; c, queued behind it, did not wait for anything.
    trace = awaited_elsewhere(5_000).launch("b", at=30, dur=5, start=600, run=10)
    trace.launch("c", at=40, dur=5, start=700, run=10)
    assert parts_of(told(trace).devices[0]) == {"stream wait": 100, "device gap": 90}


def test_a_wait_of_another_stream_holds_nobody_here():
    trace = awaited_elsewhere(5_000)
    trace.on(stream=9).launch("b", at=30, dur=5, start=5_030, run=10)
    assert parts_of(told(trace).devices[0]) == {"device gap": 4_530}


def test_work_queued_after_the_event_is_not_awaited():
    trace = awaited_elsewhere(520)
    trace.on(device=1, stream=20).launch("later", at=15, dur=2, start=520, run=9_000)
    trace.launch("b", at=30, dur=5, start=600, run=10)
    assert parts_of(told(trace).devices[0]) == {"stream wait": 20, "device gap": 80}


def test_ranks_with_the_same_correlation_ids():
    # Both ranks number their calls 1, 2. Rank 0 queued its second kernel; rank 1 was late by
    # 100 to 400 (gap 300, call 10, latency 90).
    trace = TraceBuilder()
    for rank, at in ((0, 10), (1, 400)):
        here = trace.on(rank=rank).launch("a", at=0, dur=5, start=50, run=50)
        here.launch("b", at=at, dur=10, start=500, run=50)
    first, second = told(trace).devices
    assert parts_of(first) == {"device gap": 400}
    assert parts_of(second) == {"host gap": 300, "launch call": 10, "launch latency": 90}
