"""Blocking reads with hand-reasoned truth: what is a read, did it wait, and what it costs.

Also the clocks, since a read's end bounds them. Figures are reasoned in the comments.
"""

from __future__ import annotations

import pytest

from bubblescope.diagnose.model import Diagnosis
from tests.agreement import parts_of, told
from tests.synthetic import TraceBuilder

STREAM, DEVICE, COPY = "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemcpyAsync"


def reads(d: Diagnosis) -> dict[str, tuple[int, int, int, int, int]]:
    """Calls, waited, blocked, exposed and idle after; by the innermost record around, else name."""
    return {
        (r.within[-1] if r.within else r.name): (
            r.calls,
            r.waited,
            r.blocked_ns,
            r.exposed_idle_ns,
            r.idle_after_ns,
        )
        for r in d.reads
    }


# -- read-backs ---------------------------------------------------------------------------------


def test_copy_to_the_host_then_synchronise():
    # The copy ends at 10,100 and the synchronise returns at 10,400: 300 read tail. The launch is
    # called at 10,700 (50 still in aten::item, 250 of nothing), runs 50 and its kernel starts
    # 150 later. The copy's call returned long before the copy's end: the read is the
    # synchronise's own [50, 10,400), and all 650 host-late ns are less than its 10,350.
    trace = TraceBuilder().launch("gemm", at=0, dur=10, start=20, run=10_000)
    trace.range("op", "aten::item", 25, 10_425)
    trace.copy("DtoH", at=30, dur=10, start=10_020, run=80).sync(at=50, dur=10_350)
    trace.launch("next", at=10_700, dur=50, start=10_900, run=100)
    d = told(trace)
    assert parts_of(d.devices[0]) == {
        "read tail": 300,
        "host gap": 300,
        "launch call": 50,
        "launch latency": 150,
    }
    assert [(r.name, r.within) for r in d.reads] == [(STREAM, ("aten::item",))]
    assert reads(d) == {"aten::item": (1, 1, 10_350, 650, 800)}


def copied(memory: str = "Pageable", call: str = COPY, direction: str = "DtoH") -> TraceBuilder:
    """A copy [4000, 5000) whose call [100, 5100) returns after it; next kernel at 5,600."""
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=3_980)
    trace.copy(direction, at=100, dur=5_000, start=4_000, run=1_000, memory=memory, call=call)
    return trace.launch("next", at=5_500, dur=50, start=5_600, run=10)


@pytest.mark.parametrize(
    ("how", "is_read"),
    [
        ({}, True),  # non_blocking=True to pageable memory
        ({"direction": "HtoD"}, True),
        ({"memory": "Pinned"}, False),  # an asynchronous copy of pinned memory never waits
        ({"memory": "Pinned", "call": "cudaMemcpy"}, True),  # a plain one does
        ({"call": "hipMemcpyWithStream"}, True),
        ({"direction": "DtoD"}, False),  # gives the host nothing to read
        ({"direction": "DtoD", "call": "cudaMemcpy"}, False),
    ],
)
def test_which_copies_are_reads(how, is_read):
    # [5000, 5100) is in the copy's call, then 400 of nothing, 50 launch call, 50 latency. As a
    # read it waited (its copy ended after it began) for 5,000, more than the 550 host-late ns.
    d = told(copied(**how))
    late = {"launch call": 50, "launch latency": 50}
    if is_read:
        name = how.get("call", COPY)
        assert parts_of(d.devices[0]) == {"read tail": 100, "host gap": 400} | late
        assert reads(d) == {name: (1, 1, 5_000, 550, 600)}
    else:
        assert parts_of(d.devices[0]) == {"host gap": 500} | late
        assert reads(d) == {}


def test_a_copy_call_that_returns_before_its_copy_is_done_is_no_read():
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=3_980)
    trace.copy("DtoH", at=100, dur=4_899, start=4_000, run=1_000)
    assert reads(told(trace)) == {}


def test_a_copy_that_is_a_read_and_its_synchronise_are_one():
    # One interval from the copy's begin at 100 to the synchronise's return at 5,300, the 100
    # between the two calls included; the copy's call is the longer of the two and names it.
    # Bubble [5000, 5600): 300 read tail, 200 gap, 50 call, 50 latency; 550 charged.
    d = told(copied().sync(at=5_200, dur=100))
    expected = {"read tail": 300, "host gap": 200, "launch call": 50, "launch latency": 50}
    assert parts_of(d.devices[0]) == expected
    assert reads(d) == {COPY: (1, 1, 5_200, 550, 600)}


def test_an_op_begun_between_copy_and_synchronise_parts_them():
    # Two reads. The second began after all work was done, as its sync row tells: it did not
    # wait, and its 100 of read tail count against the copy.
    trace = copied().range("op", "aten::view", 5_110, 20).sync(at=5_200, dur=100, row="stream")
    assert reads(told(trace)) == {COPY: (1, 1, 5_000, 550, 600), STREAM: (1, 0, 100, 0, 0)}


def test_a_copy_and_a_synchronise_of_different_ops_are_two_reads():
    # Though two, the copy right before tells what the synchronise waited for: nothing more, as
    # the copy was done at 5,000.
    trace = copied().range("op", "aten::copy_", 90, 5_020).sync(at=5_200, dur=20_000)
    trace.launch("last", at=26_000, dur=10, start=26_020, run=10)
    assert reads(told(trace)) == {
        "aten::copy_": (1, 1, 5_000, 5_000, 600 + 20_410),
        STREAM: (1, 0, 20_000, 0, 0),
    }


def test_a_launch_between_copy_and_synchronise_parts_them():
    # "next" was launched between them and ended at 5,610, before the synchronise, as its sync
    # row tells.
    trace = copied().sync(at=5_700, dur=60, row="stream")
    assert reads(told(trace)) == {COPY: (1, 1, 5_000, 550, 600), STREAM: (1, 0, 60, 0, 0)}


def test_a_blocking_copy_is_not_charged_with_its_own_launch():
    # The read "first" returned at 1,050, to a device dry since 1,000. The copy is called at
    # 1,200 and starts at 1,500: 50 tail, 150 gap, 300 launch call, all for "first", since a
    # read makes later launches late, and the copy's call is not later than itself. Then the
    # copy pays from its end at 1,600: 100 tail, 100 gap, 10 call; 90 latency after it.
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=980)
    trace.range("annotation", "first", 90, 1_000).sync(at=100, dur=950, call=DEVICE)
    trace.copy("DtoH", at=1_200, dur=500, start=1_500, run=100)
    trace.launch("b", at=1_800, dur=10, start=1_900, run=10)
    d = told(trace)
    assert parts_of(d.devices[0]) == {
        "read tail": 50 + 100,
        "host gap": 150 + 100,
        "launch call": 300 + 10,
        "launch latency": 90,
    }
    assert reads(d) == {"first": (1, 1, 950, 500, 500), COPY: (1, 1, 500, 210, 300)}


def test_a_call_inside_a_read_is_part_of_it():
    trace = two_streams()
    trace.call("cuStreamSynchronize", 40, 100)
    assert reads(told(trace)) == {STREAM: (1, 1, 170, 0, 0)}


# -- price --------------------------------------------------------------------------------------


def two_streams() -> TraceBuilder:
    """Stream 7 works [20, 120), stream 9 [30, 5000); a read of stream 7 alone from 30 to 200."""
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=100)
    trace.on(stream=9).launch("long", at=10, dur=10, start=30, run=4_970)
    return trace.sync(at=30, dur=170, row="stream")


def test_a_read_that_costs_nothing_as_the_device_is_busy_elsewhere():
    d = told(two_streams().launch("next", at=300, dur=10, start=5_000, run=50))
    assert parts_of(d.devices[0]) == {}
    assert reads(d) == {STREAM: (1, 1, 170, 0, 0)}


def test_a_read_that_returns_while_the_device_is_busy_is_charged_later():
    # It made the host late by 170, so that it is to blame for 170 of the 400 host gap and 10
    # launch call of the bubble [5000, 5450), though the device was busy when it returned.
    d = told(two_streams().launch("next", at=5_400, dur=10, start=5_450, run=50))
    assert parts_of(d.devices[0]) == {"host gap": 400, "launch call": 10, "launch latency": 40}
    assert reads(d) == {STREAM: (1, 1, 170, 170, 450)}


def test_debt_is_spent_over_several_bubbles():
    # 170 of debt: the first bubble [5000, 5100) takes 40 + 10, the second [5150, 5400) 120 of
    # its 200 + 10. All 100 and 250 are idle after.
    trace = two_streams().launch("b", at=5_040, dur=10, start=5_100, run=50)
    trace.launch("c", at=5_350, dur=10, start=5_400, run=50)
    d = told(trace)
    assert parts_of(d.devices[0]) == {"host gap": 240, "launch call": 20, "launch latency": 90}
    assert reads(d) == {STREAM: (1, 1, 170, 170, 350)}


def test_a_read_on_a_thread_that_launches_nothing_exposes_nothing():
    # It waited 10,070 (over 10 us; what for is not recorded), but the launching thread did not.
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=10_000)
    trace.on(thread=2).sync(at=30, dur=10_070)
    trace.launch("b", at=12_000, dur=100, start=12_300, run=10)
    d = told(trace)
    assert parts_of(d.devices[0]) == {"host gap": 1_980, "launch call": 100, "launch latency": 200}
    assert reads(d) == {STREAM: (1, 1, 10_070, 0, 0)}


def in_turn(second_at: int, second_dur: int) -> TraceBuilder:
    """The device works [50, 20000); a read "first" [100, 20050) and a "second" one."""
    trace = TraceBuilder().launch("a", at=0, dur=10, start=50, run=19_950)
    trace.range("annotation", "first", 90, 19_970).sync(at=100, dur=19_950, call=DEVICE)
    trace.range("annotation", "second", second_at - 5, second_dur + 10)
    return trace.sync(at=second_at, dur=second_dur, call=DEVICE)


def test_a_later_read_that_waited_sets_older_debt_to_zero():
    # b runs [20130, 20600): tail 50, gap 50, call 20, latency 10 before it, all after "first".
    # "second" waits for b [20200, 20700). c is called at 24,000 for 30 and starts at 24,040:
    # tail 100, gap 3,300, call 30, latency 10. "second" pays its 500; nobody pays the rest,
    # although "first" still owed 19,830.
    trace = in_turn(20_200, 500).launch("b", at=20_100, dur=20, start=20_130, run=470)
    trace.launch("c", at=24_000, dur=30, start=24_040, run=10)
    d = told(trace)
    assert parts_of(d.devices[0]) == {
        "read tail": 50 + 100,
        "host gap": 50 + 3_300,
        "launch call": 20 + 30,
        "launch latency": 10 + 10,
    }
    assert reads(d) == {"first": (1, 1, 19_950, 120, 130), "second": (1, 1, 500, 500, 3_440)}


def test_a_later_read_that_did_not_wait_changes_nothing():
    # "second" [20100, 20110) begins when all is done. The bubble [20000, 20540) is 50 + 10 tail,
    # 50 + 390 gap, 20 call, 20 latency: 520 for "first".
    trace = in_turn(20_100, 10).launch("b", at=20_500, dur=20, start=20_540, run=10)
    d = told(trace)
    assert parts_of(d.devices[0]) == {
        "read tail": 60,
        "host gap": 440,
        "launch call": 20,
        "launch latency": 20,
    }
    assert reads(d) == {"first": (1, 1, 19_950, 520, 540), "second": (1, 0, 10, 0, 0)}


@pytest.mark.parametrize(("dur", "waited"), [(10_000, 0), (10_001, 1)])
def test_where_the_awaited_work_is_not_known_only_a_long_read_waited(dur, waited):
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=100).sync(at=30, dur=dur)
    assert reads(told(trace)) == {STREAM: (1, waited, dur, 0, 0)}


def test_an_event_row_tells_what_was_awaited():
    # The event was recorded after a [20, 120) and before b: at 150 its work was done.
    trace = TraceBuilder().launch("a", at=0, dur=5, start=20, run=100).record("e", 6, 2)
    trace.launch("b", at=10, dur=5, start=120, run=500)
    trace.sync(at=150, dur=20, call="cudaEventSynchronize", row="event", event="e")
    assert reads(told(trace)) == {"cudaEventSynchronize": (1, 0, 20, 0, 0)}


# -- polling ------------------------------------------------------------------------------------


def polled(count: int, every: int = 1_000, status: int = -1) -> TraceBuilder:
    """Queries of 500 ns from 100 on; dry from 3,000, next launch at 21,000."""
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=2_980)
    trace.queries(at=100, count=count, every=every, dur=500, status=status)
    return trace.launch("b", at=21_000, dur=100, start=21_200, run=10)


def test_many_queries_are_one_polling_read():
    # 16 queries: [100, 15600), 15,500 in all, over 10 us. Bubble [3000, 21200): 12,600 read
    # tail, 5,400 gap, 100 call, 100 latency; the read pays 15,500 of 18,100.
    d = told(polled(16))
    assert parts_of(d.devices[0]) == {
        "read tail": 12_600,
        "host gap": 5_400,
        "launch call": 100,
        "launch latency": 100,
    }
    assert reads(d) == {"cudaEventQuery (polling)": (1, 1, 15_500, 15_500, 18_200)}


def test_fewer_queries_are_not():
    d = told(polled(15))
    assert reads(d) == {}
    assert parts_of(d.devices[0])["host gap"] == 18_000


def test_queries_with_another_call_between_are_not_in_a_row():
    assert reads(told(polled(16).call("cudaGetLastError", 7_700, 10))) == {}


def test_a_query_that_was_not_ready_polls():
    # Three: [100, 4600), too short to have waited, as what it polls for is not recorded.
    d = told(polled(3, every=2_000, status=600))
    assert parts_of(d.devices[0])["read tail"] == 1_600
    assert reads(d) == {"cudaEventQuery (polling)": (1, 0, 4_500, 0, 0)}


def test_an_allocator_that_asks_and_goes_on_does_not_poll():
    # Asked four times, never ready: the host went on. Then ready, after other calls; and sixteen
    # events that were all ready. PyTorch's pinned-memory allocator does all of this.
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=2_980)
    for n in range(4):
        trace.call("cudaEventQuery", 100 + 10 * n, 5, status=600, event_record=7)
    trace.launch("b", at=200, dur=10, start=3_010, run=10)
    for n in range(16):
        trace.call("cudaEventQuery", 300 + 10 * n, 5, status=0, event_record=7 + n)
    assert reads(told(trace)) == {}


def test_a_host_that_works_between_its_queries_does_not_poll():
    # Queries of 1 us every 10 us, the last one ready: a tenth of the time in them. At every 4 us it
    # is a fourth, which polls.
    for every, found in ((10_000, {}), (4_000, {"cudaEventQuery (polling)": (1, 0, 9_000, 0, 0)})):
        trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=2_980)
        trace.queries(at=100, count=3, every=every, dur=1_000, status=600)
        assert reads(told(trace)) == found


def test_events_asked_after_in_turn_are_no_wait():
    # As recorded of the allocator under SGLang: two not ready, then three ready, all in 21 us.
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=2_980)
    for at, status, event in ((100, 600, 7), (110, 600, 9), (120, 0, 7), (130, 0, 8), (140, 0, 9)):
        trace.call("cudaEventQuery", at, 8, status=status, event_record=event)
    assert reads(told(trace)) == {}


def test_another_event_that_is_ready_ends_no_wait():
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=2_980)
    trace.call("cudaEventQuery", 100, 5, status=600, event_record=7)
    trace.call("cudaEventQuery", 110, 5, status=0, event_record=8)
    assert reads(told(trace)) == {}


def test_an_event_recorded_before_a_copy_is_not_waited_for_as_if_it_were_the_copys():
    # As SGLang's overlap loop does: a copy is queued for later, then the host waits for the event
    # of the step before, whose work ended at 500. It returns at 1,130, long before the copy ends.
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=480).record("done", 20, 5)
    trace.launch("b", at=30, dur=10, start=600, run=9_000)
    trace.copy("DtoH", at=1_000, dur=10, start=9_700, run=100, memory="Pinned")
    trace.sync(at=1_100, dur=30, call="cudaEventSynchronize", row="event", event="done")
    trace.launch("c", at=20_000, dur=10, start=20_100, run=10)
    d = told(trace)
    assert reads(d) == {"cudaEventSynchronize": (1, 0, 30, 0, 0)}
    assert d.clocks.low is None or d.clocks.low <= 0
    assert "unresolved" not in parts_of(d.devices[0])


def test_a_query_that_was_not_ready_last_is_not_followed_by_others():
    trace = TraceBuilder().launch("a", at=0, dur=10, start=20, run=2_980)
    trace.call("cudaEventQuery", 100, 5, status=0).call("cudaEventQuery", 110, 5, status=600)
    assert reads(told(trace)) == {}


# -- clocks -------------------------------------------------------------------------------------


def skewed(by: int, second: int = 123_000) -> TraceBuilder:
    """A device clock off by `by`. True times: [105000, 115000) and [`second`, +4000).

    The device synchronise returns 500 after the first kernel; the second is launched at 120,000.
    """
    trace = TraceBuilder().launch("a", at=100_000, dur=2_000, start=105_000 + by, run=10_000)
    trace.sync(at=102_500, dur=13_000, call=DEVICE)
    return trace.launch("b", at=120_000, dur=2_000, start=second + by, run=4_000)


def test_clocks_within_their_bounds_are_left_alone():
    # Launches allow at most 3,000 to be taken off, the read at most 500 to be added.
    d = told(skewed(0))
    assert (d.clocks.low, d.clocks.high, d.clocks.shift) == (-3_000, 500, 0)
    assert parts_of(d.devices[0]) == {
        "read tail": 500,
        "host gap": 4_500,
        "launch call": 2_000,
        "launch latency": 1_000,
    }
    # Every ns but the latency's is less than the 13,000 that the read waited.
    assert reads(d) == {DEVICE: (1, 1, 13_000, 7_000, 8_000)}


def test_device_clock_nine_us_early():
    # At least 6,000 must be added for b to start after its launch was called, at most 9,500. With
    # 6,000 the bubble is [112000, 120000) on the host's clock: its last 4,500 follow the read.
    d = told(skewed(-9_000))
    assert (d.clocks.low, d.clocks.high, d.clocks.shift) == (6_000, 9_500, 6_000)
    assert parts_of(d.devices[0]) == {"read tail": 3_500, "host gap": 4_500}
    assert reads(d) == {DEVICE: (1, 1, 13_000, 8_000, 8_000)}
    assert any(note.kind == "clock skew" for note in d.health)


def test_device_clock_nine_us_late():
    # At least 8,500 must be taken off for the read to return after its work, at most 12,000. With
    # 8,500 the bubble is [115500, 123500): it begins as the read returns.
    d = told(skewed(9_000))
    assert (d.clocks.low, d.clocks.high, d.clocks.shift) == (-12_000, -8_500, -8_500)
    assert parts_of(d.devices[0]) == {
        "host gap": 4_500,
        "launch call": 2_000,
        "launch latency": 1_500,
    }
    assert reads(d) == {DEVICE: (1, 1, 13_000, 6_500, 8_000)}
    assert any(note.kind == "clock skew" for note in d.health)


def test_clocks_that_no_offset_mends_leave_a_bubble_unresolved():
    # b starts 10,000 before its launch, and the read allows 9,500 to be added: no x will do.
    # Only the bubble that b ends is in doubt: c, called at 131,000, is split as recorded, its
    # first 1,500 under the read, which returns at 115,500.
    trace = skewed(-9_000, second=119_000)
    trace.launch("c", at=131_000, dur=500, start=132_000, run=10)
    d = told(trace)
    assert (d.clocks.low, d.clocks.high, d.clocks.shift) == (10_000, 9_500, 0)
    assert parts_of(d.devices[0]) == {
        "unresolved": 110_000 - 106_000,
        "read tail": 115_500 - 114_000,
        "host gap": 131_000 - 115_500,
        "launch call": 500,
        "launch latency": 500,
    }


def test_clocks_further_apart_than_skew_can_be_are_not_mended():
    # b starts 20,001 before its launch; 20,000 would still be taken for skew.
    for early, unresolved in ((20_000, 0), (20_001, 50)):
        trace = TraceBuilder().launch("a", at=0, dur=10, start=200_000, run=100)
        trace.launch("b", at=200_150 + early, dur=10, start=200_150, run=100)
        d = told(trace)
        assert parts_of(d.devices[0]).get("unresolved", 0) == unresolved
        assert d.clocks.shift == (0 if unresolved else early)
