"""Communication: hidden, exposed and waiting time by hand, and checked in plain loops."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.collectives import Collective, of_call, of_kernel
from bubblescope.diagnose.exchange import Communication
from bubblescope.ingest import load
from tests.corpus import need
from tests.ranks import together
from tests.synthetic import TraceBuilder

REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def said(trace: TraceBuilder, **asked: str) -> Communication:
    found = diagnose(trace.timeline(), **asked).communication  # type: ignore[arg-type]
    assert found is not None
    return found


def test_kernels_that_communicate() -> None:
    names = {
        REDUCE: "all-reduce",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)": "send/receive",
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL": "reduce-scatter",
        "ncclDevKernel_AllGather_RING_LL": "all-gather",
        "ncclDevKernel_Broadcast_RING_LL": "broadcast",
        "ncclDevKernel_Reduce_Sum_f32_RING_LL": "reduce",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": "other",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": "all-reduce",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>": "all-reduce",
        "void tensorrt_llm::oneShotAllReduceKernel<half>()": "all-reduce",
        "void deep_ep::intranode::dispatch<8, 768>(int4*)": "all-to-all",
        "Memcpy PtoP (Device -> Device)": "send/receive",
    }
    assert {n: k.label for n in names if (k := of_kernel(n)) is not None} == names


def test_kernels_that_only_sound_like_it() -> None:
    for name in (
        "void at::native::reduce_kernel<512, 1>()",
        "vectorized_gather_kernel",
        "triton_red_fused_all_reduce_add_3",
        "void moe_dispatch_kernel<int>()",
        "Memcpy DtoD (Device -> Device)",
    ):
        assert of_kernel(name) is None


def test_what_frameworks_call_them() -> None:
    assert of_call("_allgather_base") is Collective.ALL_GATHER
    assert of_call("nccl:_reduce_scatter_base") is Collective.REDUCE_SCATTER
    assert of_call("alltoallv") is Collective.ALL_TO_ALL
    assert of_call("nccl:send 0->1") is Collective.SEND_RECEIVE


def test_hidden_and_exposed() -> None:
    # The gemm runs [10, 110), the all-reduce [60, 160) beside it, a second gemm [200, 250):
    # 50 of it hidden, 50 exposed. Nothing says that there is any other rank.
    trace = TraceBuilder().launch("gemm", at=0, dur=5, start=10, run=100)
    trace.on(stream=20).launch(REDUCE, at=6, dur=2, start=60, run=100)
    trace.launch("gemm", at=9, dur=5, start=200, run=50)
    found = said(trace)
    total = found.total
    assert (total.calls, total.busy_ns, total.hidden_ns, total.exposed_ns) == (1, 100, 50, 50)
    assert (total.waiting_ns, total.exposed_waiting_ns, found.late) == (None, None, ())
    assert "may be waiting" in found.note
    assert found.devices == (total,)


def test_no_communication_is_said_to_be_none() -> None:
    trace = TraceBuilder().launch("gemm", at=0, dur=5, start=10, run=100)
    assert diagnose(trace.timeline()).communication is None


def two_ranks(late: int = 500, shift: int = 0) -> TraceBuilder:
    """An all-reduce at 100 on rank 0, which works to 100 + late + 50, and `late` later on rank 1.

    Rank 1's host is in "encode" [60, 60 + late) before it. shift: of rank 1's clock.
    """
    trace = TraceBuilder()
    for rank in (0, 1):
        here = trace.on(rank=rank)
        x, behind = rank * shift, rank * late
        here.launch("gemm", at=x, dur=5, start=10 + x, run=40)
        here.launch(
            REDUCE,
            at=80 + behind + x,
            dur=5,
            start=100 + behind + x,
            run=50 + late - behind,
            sequence=7,
            collective="allreduce",
            group="0 [0, 1]",
        )
        here.launch("gemm", at=late + 150 + x, dur=5, start=late + 170 + x, run=30)
    trace.on(rank=1).range("annotation", "encode", 60 + shift, late)
    return trace


def test_the_late_rank_and_what_its_host_did() -> None:
    found = said(two_ranks())
    assert found.total.busy_ns == 550 + 50
    assert (found.total.waiting_ns, found.total.exposed_waiting_ns) == (500, 500)
    assert [d.waiting_ns for d in found.devices] == [500, 0]
    (kind,) = found.kinds
    assert (kind.kind, kind.calls, kind.total_ns, kind.waiting_ns) == ("all-reduce", 2, 600, 500)
    late, other = found.late
    assert (late.rank, late.met, late.last, late.late_ns, late.waited_ns) == (1, 1, 1, 500, 0)
    assert late.others_waited_ns == 500
    # It was waited for in [100, 600): its device was dry from 50 on, its call ran [580, 585).
    assert late.during_ns == {"host gap": 480, "launch call": 5, "launch latency": 15}
    assert [(a.doing, a.name, a.ns) for a in late.doing] == [
        ("annotation", "encode", 460),
        ("nothing recorded", "", 20),
    ]
    assert (other.rank, other.last, other.waited_ns, other.during_ns) == (0, 0, 500, {})
    assert found.note == ""


def test_clocks_of_two_hosts_that_disagree() -> None:
    # Rank 1's clock is 3 ms ahead: its collective would begin after rank 0's had ended. Laid
    # together by their ends, all is as it was.
    found = said(two_ranks(shift=3_000_000))
    assert found.total.waiting_ns == 500
    assert [late.shift_ns for late in found.late] == [-3_000_000, 0]
    assert "rank 1 by -3,000.000 us" in found.note


def test_ranks_that_are_missing_may_be_the_late_one() -> None:
    trace = two_ranks().on(rank=3)
    trace.launch("gemm", at=0, dur=5, start=10, run=40)
    found = said(trace)
    assert found.total.waiting_ns == 500
    assert "1 of 4 ranks are not here" in found.note


def loop(ranks: int, steps: int, first: int = 0, sequence: bool = False) -> TraceBuilder:
    """A gemm and an all-reduce a step of 1,000; in step k rank k % ranks comes 100 late.

    first: rank 1 was recorded from that step on.
    """
    trace = TraceBuilder()
    for k in range(steps):
        for rank in range(ranks):
            if rank == 1 and k < first:
                continue
            at, late = 1_000 * k, 100 if k % ranks == rank else 0
            here = trace.on(rank=rank)
            here.range("annotation", "decode", at, 900)
            here.launch("gemm", at=at, dur=5, start=at + 10, run=200)
            here.launch(
                REDUCE,
                at=at + 300,
                dur=5,
                start=at + 400 + late,
                run=200 - late,
                **({"sequence": k} if sequence else {}),
            )
    return trace


def test_ranks_that_were_recorded_from_different_steps_on() -> None:
    for sequence in (False, True):
        found = said(loop(ranks=2, steps=6, first=2, sequence=sequence))
        late = {x.rank: x for x in found.late}
        # Steps 2 to 5 are on both: each rank comes late in two of them.
        assert {rank: (x.met, x.last, x.late_ns) for rank, x in late.items()} == {
            0: (4, 2, 200),
            1: (4, 2, 200),
        }
        assert found.total.waiting_ns == 4 * 100


def test_medians_a_step_are_of_sums_over_devices() -> None:
    found = said(loop(ranks=3, steps=9))
    # A step has one rank 100 late, and two that wait 100 each: 200 + 200 + 100.
    assert found.total.busy_ns_per_step == 500
    assert found.total.exposed_ns_per_step == 500
    assert found.total.exposed_waiting_ns_per_step == 200
    assert sum(x.others_waited_ns for x in found.late) == sum(x.waited_ns for x in found.late)


def test_collectives_that_cannot_be_the_same_are_not_matched() -> None:
    # Rank 1 reduces in a group of its own, at other times: by order, each pair is impossible.
    trace = TraceBuilder()
    for k in range(6):
        trace.launch(REDUCE, at=1_000 * k, dur=5, start=1_000 * k + 10, run=100)
        at = 1_000 * k + (300, 700)[k % 2]
        trace.on(rank=1).launch(REDUCE, at=at, dur=5, start=at + 10, run=100)
    found = said(trace)
    assert (found.total.waiting_ns, found.late) == (None, ())
    assert "not told from work" in found.note


def test_the_annotation_says_what_nccl_runs_as_sends() -> None:
    trace = TraceBuilder().range("annotation", "nccl:all_to_all", 0, 20)
    trace.launch("ncclKernel_SendRecv_RING_SIMPLE", at=5, dur=5, start=15, run=10)
    trace.launch("ncclKernel_SendRecv_RING_SIMPLE", at=30, dur=5, start=40, run=20)
    kinds = {k.kind: k.total_ns for k in said(trace).kinds}
    assert kinds == {"all-to-all": 10, "send/receive": 20}


def test_a_window_of_steps_holds_only_what_is_in_it() -> None:
    trace = loop(ranks=2, steps=8)
    d = diagnose(trace.timeline(), window=(2, 5))
    assert d.communication is not None
    assert d.communication.total.calls == 3 * 2
    assert d.communication.total.waiting_ns == 300


# Whatever is drawn ----------------------------------------------------------------------------

Op = tuple[int, int, int, bool]  # rank, start, length, whether it communicates
SMALL = st.integers(0, 30)


@st.composite
def two_machines(draw: st.DrawFn) -> list[list[Op]]:
    """The meetings of two ranks, a pair of operations each, then work of either beside them."""
    at, meetings = 0, []
    for pause, first, second, work in draw(
        st.lists(st.tuples(SMALL, SMALL, SMALL, SMALL), min_size=1, max_size=6)
    ):
        arrived = [at + pause + first, at + pause + second]
        at = max(arrived) + 1 + work
        meetings.append([(rank, start, at - start, True) for rank, start in enumerate(arrived)])
    others = st.tuples(st.integers(0, 1), st.integers(0, at), st.integers(1, 40), st.just(False))
    return [*meetings, draw(st.lists(others, max_size=8))]


def brute(ops: list[Op], meetings: list[list[Op]], rank: int) -> tuple[int, int, int, int]:
    """Communication, hidden, waiting and exposed waiting time of a rank, ns by ns."""
    last = {pair[rank]: max(start for _, start, _, _ in pair) for pair in meetings}
    sums = [0, 0, 0, 0]
    mine = [o for o in ops if o[0] == rank]
    for t in range(max(o[1] + o[2] for o in ops)):
        there = [o for o in mine if o[1] <= t < o[1] + o[2]]
        talking = [o for o in there if o[3]]
        waits = bool(talking) and all(t < last[o] for o in talking)
        alone = len(there) == len(talking)
        sums = [
            sums[0] + bool(talking),
            sums[1] + (bool(talking) and not alone),
            sums[2] + waits,
            sums[3] + (waits and alone),
        ]
    return sums[0], sums[1], sums[2], sums[3]


@given(two_machines())
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_every_nanosecond_is_hidden_or_exposed_waits_or_works(drawn: list[list[Op]]) -> None:
    *meetings, others = drawn
    ops = [*(o for pair in meetings for o in pair), *others]
    trace = TraceBuilder()
    for rank, start, run, talks in ops:
        where = trace.on(rank=rank, stream=20 if talks else 7)
        where.launch(REDUCE if talks else "gemm", at=start - 20, dur=1, start=start, run=run)
    d = diagnose(trace.timeline())
    found = d.communication
    assert found is not None
    assert [late.met for late in found.late] == [len(meetings)] * 2
    for rank, (exchange, device) in enumerate(zip(found.devices, d.devices, strict=True)):
        assert exchange.hidden_ns + exchange.exposed_ns == exchange.busy_ns <= device.busy_ns
        figures = (exchange.busy_ns, exchange.hidden_ns, exchange.waiting_ns)
        assert (*figures, exchange.exposed_waiting_ns) == brute(ops, meetings, rank)
    late = {x.rank: x for x in found.late}
    for rank in (0, 1):
        by = [pair[rank][1] - pair[1 - rank][1] for pair in meetings]
        assert late[rank].late_ns == late[rank].others_waited_ns == sum(x for x in by if x > 0)
        assert late[rank].last == sum(x > 0 for x in by)


# Recordings -----------------------------------------------------------------------------------


def test_eight_ranks_of_a_recommender() -> None:
    # Five all-to-alls and three all-reduces on each of eight ranks, counted in the files; ends
    # of one collective lie at most 7 us apart there, while durations differ by milliseconds.
    paths = sorted(need("traces/dlrm_8rank").glob("*.gz"))
    timeline = together([load(path) for path in paths])
    found = diagnose(timeline).communication
    assert found is not None
    assert {(k.kind, k.calls) for k in found.kinds} == {("all-to-all", 40), ("all-reduce", 24)}
    assert [x.met for x in found.late] == [8] * 8
    assert all(x.shift_ns == 0 for x in found.late)
    assert sum(x.last for x in found.late) == 8
    # What the collectives themselves take is what the last to come needs: under a millisecond.
    assert found.total.waiting_ns is not None
    assert found.total.busy_ns - found.total.waiting_ns < 8 * 300_000
    assert found.late[0].rank == 7
    assert found.late[0].last == 5
    assert sum(x.others_waited_ns for x in found.late) == sum(x.waited_ns for x in found.late)
