"""Predictions against the truth: the same loop, run anew with what the what-if changes."""

from __future__ import annotations

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.errors import BubblescopeError
from bubblescope.predict import Prediction, parse, predict
from bubblescope.timeline import Timeline
from tests.machine import (
    Await,
    Costs,
    Graph,
    Instruction,
    Launch,
    Range,
    Read,
    Record,
    Work,
    faster,
    recorded,
)


def step(timeline: Timeline) -> int:
    """The median step, as diagnosed."""
    steps = diagnose(timeline).steps
    median = steps.median(steps.length_ns)
    assert median is not None
    return median


def predicted(loop: list[Instruction], *what_ifs: str) -> Prediction:
    made = predict(recorded(loop), [parse(text) for text in what_ifs])
    assert made.withheld == ""
    assert made.replayed_ns == made.step_ns == step(recorded(loop))
    return made


# Each loop begins with two kernels in a row, so that the recording shows what a boundary costs.
HOST_BOUND: list[Instruction] = [
    Launch("long", 12_000),
    Launch("short", 3_000),
    Work(90_000),
    Launch("short", 3_000),
    Work(20_000, "sample"),
]
DEVICE_BOUND: list[Instruction] = [
    Launch("gemm", 80_000),
    Launch("norm", 9_000),
    Work(11_000),
    Launch("gemm", 80_000),
]
READ_BOUND: list[Instruction] = [
    Launch("gemm", 30_000),
    Launch("gemm", 30_000),
    Launch("pick", 2_000),
    Read(),
    Work(25_000),
]


def test_the_machine_does_what_it_is_said_to() -> None:
    # Host: four calls of 4 us and 110 us of work, but no read: 3 launches and the work.
    assert step(recorded(HOST_BOUND)) == 3 * 4_000 + 110_000
    assert step(recorded(DEVICE_BOUND)) == 2 * 80_000 + 9_000 + 3 * 1_300
    # Launch, both gemms, the pick, back to the host, its work; then the next launch.
    assert step(recorded(READ_BOUND)) == 6_500 + 62_000 + 2 * 1_300 + 4_000 + 25_000


def test_faster_kernels_do_not_help_a_host() -> None:
    made = predicted(HOST_BOUND, "speed-up:short=3")
    assert made.predicted_ns == 122_000
    assert made.saving_ns == 0


def test_less_host_work_helps_a_host_until_the_device_decides() -> None:
    less = [x for x in HOST_BOUND if x != Work(20_000, "sample")]
    made = predicted(HOST_BOUND, "host:sample")
    assert made.predicted_ns == step(recorded(less)) == 102_000
    none: list[Instruction] = [x for x in HOST_BOUND if not isinstance(x, Work)]
    made = predicted(HOST_BOUND, "host:sample", "host:prepare")
    assert made.predicted_ns == step(recorded(none)) == 12_000 + 2 * 3_000 + 3 * 1_300


@pytest.mark.parametrize("factor", [2, 4, 16])
def test_faster_kernels_help_a_device_until_the_host_decides(factor: int) -> None:
    made = predicted(DEVICE_BOUND, f"speed-up:gemm={factor}")
    assert made.predicted_ns == step(recorded(faster(DEVICE_BOUND, "gemm", factor)))


def test_two_what_ifs_are_not_their_sum() -> None:
    made = predicted(DEVICE_BOUND, "speed-up:gemm=16", "host:prepare")
    loop = [x for x in faster(DEVICE_BOUND, "gemm", 16) if not isinstance(x, Work)]
    assert made.predicted_ns == step(recorded(loop))


def test_without_the_read() -> None:
    without = [x for x in READ_BOUND if not isinstance(x, Read)]
    for text in ("read:cudaStreamSynchronize", "read:cudaStreamSynchronize in step"):
        made = predicted(READ_BOUND, text)
        assert made.predicted_ns == step(recorded(without)) == 62_000 + 3 * 1_300
    assert made.after is not None
    assert made.after.reads == ()


def test_a_read_that_does_not_wait_still_costs_its_call() -> None:
    # A call that returned at once is not recorded: what remains is taken to be its return.
    called: list[Instruction] = [Work(4_000) if isinstance(x, Read) else x for x in READ_BOUND]
    made = predicted(READ_BOUND, "wait:cudaStreamSynchronize")
    assert made.predicted_ns == step(recorded(called))


def test_the_read_leaves_a_shorter_wait_behind_faster_kernels() -> None:
    made = predicted(READ_BOUND, "speed-up:gemm=3")
    assert made.predicted_ns == step(recorded(faster(READ_BOUND, "gemm", 3)))


SHORT: list[Instruction] = [
    *(Launch("tiny", 2_000) for _ in range(4)),
    Launch("long", 60_000),
    Launch("long", 60_000),
    Read(),
]
"""A tiny kernel ends 0.5 us after the next launch returned, and 2 us before that can begin."""


def test_a_launch_may_have_returned_and_still_decide() -> None:
    made = predicted(SHORT, "read:cudaStreamSynchronize")
    # Once the host is ahead nothing is left between kernels but the boundary.
    assert made.predicted_ns == 4 * (2_000 + 1_300) + 2 * (60_000 + 1_300)


def test_a_read_that_never_waited_returns_as_soon_as_it_can() -> None:
    loop: list[Instruction] = [Launch("gemm", 30_000), Launch("gemm", 1_000), Work(80_000), Read()]
    made = predicted(loop, "speed-up:gemm=1/4")
    # Launch, both gemms and the boundary; the read is back 4 us later, as long as its call takes.
    assert made.predicted_ns == 6_500 + 4 * 31_000 + 1_300 + 4_000


def test_a_read_of_all_streams_waits_for_whichever_is_last() -> None:
    loop: list[Instruction] = [
        Launch("left", 30_000, 7),
        Launch("right", 80_000, 9),
        Launch("right", 2_000, 9),
        Read(None),
    ]
    made = predicted(loop, "speed-up:right=10")
    # The left stream is last now: launched, run, returned from.
    assert made.predicted_ns == 6_500 + 30_000 + 4_000
    assert made.changed is not None
    assert sum(row.ns_per_step for row in made.changed.path) == 40_500


STREAMS: list[Instruction] = [
    Launch("main", 40_000, 7),
    Launch("main", 40_000, 7),
    Record("done", 7),
    Await("done", 9),
    Launch("side", 30_000, 9),
    Record("side done", 9),
    Await("side done", 7),
    Launch("join", 5_000, 7),
]


@pytest.mark.parametrize("name", ["main", "side", "join"])
@pytest.mark.parametrize("factor", [2, 10])
def test_streams_that_wait_for_each_other(name: str, factor: int) -> None:
    made = predicted(STREAMS, f"speed-up:{name}={factor}")
    assert made.predicted_ns == step(recorded(faster(STREAMS, name, factor)))
    assert made.inferred.stream_waits == 0


@pytest.mark.parametrize("name", ["first", "join"])
def test_a_stream_still_waits_without_the_launch_that_waited_first(name: str) -> None:
    loop: list[Instruction] = [
        Launch("main", 40_000, 7),
        Launch("main", 40_000, 7),
        Record("done", 7),
        Await("done", 9),
        Launch("first", 3_000, 9),
        Launch("second", 30_000, 9),
        Record("side done", 9),
        Await("side done", 7),
        Launch("join", 5_000, 7),
        Launch("tail", 6_000, 7),
    ]
    without = [x for x in loop if not (isinstance(x, Launch) and x.name == name)]
    assert predicted(loop, f"launch:{name}").predicted_ns == step(recorded(without))


def test_launches_that_waited_for_an_event_say_nothing_of_a_launch() -> None:
    """Two of three launches to an empty stream wait for the other stream, over 100 us."""
    loop: list[Instruction] = [
        Launch("main", 60_000, 7),
        Launch("main", 60_000, 7),
        Record("done", 7),
        Await("done", 9),
        Await("done", 11),
        Launch("side", 2_000, 9),
        Launch("side", 2_000, 11),
        Read(9),
        Read(11),
    ]
    made = predicted(loop, "speed-up:main=60")
    assert made.predicted_ns == step(recorded(faster(loop, "main", 60)))


SIDE_BY_SIDE: list[Instruction] = [
    Record("fork", 7),
    Await("fork", 9),
    Launch("left", 60_000, 7),
    Launch("left", 60_000, 7),
    Launch("right", 50_000, 9),
    Launch("right", 50_000, 9),
    Record("right done", 9),
    Await("right done", 7),
    Launch("join", 2_000, 7),
]


@pytest.mark.parametrize("name", ["left", "right"])
@pytest.mark.parametrize("factor", [2, 6])
def test_the_longer_of_two_streams_decides(name: str, factor: int) -> None:
    made = predicted(SIDE_BY_SIDE, f"speed-up:{name}={factor}")
    assert made.predicted_ns == step(recorded(faster(SIDE_BY_SIDE, name, factor)))


GRAPHS: list[Instruction] = [
    Launch("embed", 4_000),
    Launch("embed", 4_000),
    Graph((("attention", 20_000), ("mlp", 30_000), ("attention", 20_000), ("mlp", 30_000))),
    Launch("pick", 2_000),
    Read(),
    Work(15_000),
]


@pytest.mark.parametrize("what_if", ["speed-up:mlp=3", "speed-up:attention=2"])
def test_nodes_of_graphs(what_if: str) -> None:
    made = predicted(GRAPHS, what_if)
    name, factor = what_if.removeprefix("speed-up:").split("=")
    assert made.predicted_ns == step(recorded(faster(GRAPHS, name, int(factor))))


@pytest.mark.parametrize("name", ["attention", "mlp"])
def test_without_a_graphs_nodes(name: str) -> None:
    """Also without its first: the next one then begins as that one would have."""
    left = tuple(("mlp" if name == "attention" else "attention", ns) for ns in (30_000, 30_000))
    if name == "mlp":
        left = (("attention", 20_000), ("attention", 20_000))
    without = [Graph(left) if isinstance(x, Graph) else x for x in GRAPHS]
    assert predicted(GRAPHS, f"launch:{name}").predicted_ns == step(recorded(without))


def test_graphs_without_the_read() -> None:
    without = [x for x in GRAPHS if not isinstance(x, Read)]
    made = predicted(GRAPHS, "read:cudaStreamSynchronize")
    assert made.predicted_ns == step(recorded(without))


def test_without_a_launch() -> None:
    without = [x for x in READ_BOUND if x != Launch("pick", 2_000)]
    made = predicted(READ_BOUND, "launch:pick")
    assert made.predicted_ns == step(recorded(without))
    assert made.after is not None
    assert made.after.devices[0].operations == 2 * 12


def test_launches_merged() -> None:
    """Two gemms in a row are one of their length: a call and a boundary less."""
    merged: list[Instruction] = [Launch("gemm", 60_000), *READ_BOUND[2:]]
    made = predicted(READ_BOUND, "merge:gemm")
    assert made.predicted_ns == step(recorded(merged))


def test_launches_are_not_merged_across_a_read() -> None:
    loop: list[Instruction] = [
        Launch("gemm", 30_000),
        Launch("gemm", 30_000),
        Read(),
        Launch("gemm", 30_000),
        Work(9_000),
    ]
    merged: list[Instruction] = [Launch("gemm", 60_000), *loop[2:]]
    # The last of a step and the first of the next are in a row, too; so the pick parts them.
    loop.append(Launch("pick", 2_000))
    merged.append(Launch("pick", 2_000))
    assert predicted(loop, "merge:gemm").predicted_ns == step(recorded(merged))


def test_pdl_hides_boundaries() -> None:
    hidden = recorded(READ_BOUND, costs=Costs(boundary=0))
    assert predicted(READ_BOUND, "pdl:*").predicted_ns == step(hidden)
    # Half a microsecond of each kernel that follows another lies over that one's tail.
    made = predicted(READ_BOUND, "pdl:*=0.5")
    assert made.predicted_ns == step(hidden) - 2 * 500


TINY = tuple(Launch("tiny", 1_000) for _ in range(15))
CAPTURED = Costs(latency=5_000, node=1_000)
"""What is assumed of a graph launch where no graph was recorded."""


def test_capture() -> None:
    """Fifteen eager launches, and what the host does between them, become one graph launch."""
    inside = (Work(3_000, "shapes"), *TINY[:7], Work(5_000, "shapes"), *TINY[7:])
    eager: list[Instruction] = [Range("decode", inside), Read(), Work(15_000)]
    graph = Graph(tuple(("tiny", 1_000) for _ in TINY), call=10_000)
    captured: list[Instruction] = [graph, Read(), Work(15_000)]
    made = predict(recorded(eager, costs=CAPTURED), [parse("capture:decode")])
    assert made.predicted_ns == step(recorded(captured, costs=CAPTURED))
    assert made.assumed == (
        "a graph launch call takes 10 us",
        "nodes of a graph are 1 us apart",
        "its first node begins 5 us after the call",
    )


def test_a_read_cannot_be_captured() -> None:
    loop: list[Instruction] = [Range("decode", (*TINY, Read())), Work(15_000)]
    with pytest.raises(BubblescopeError, match="blocking read lies in the range"):
        predict(recorded(loop), [parse("capture:decode")])


def test_there_is_nothing_to_capture_in_host_work() -> None:
    with pytest.raises(BubblescopeError, match="nothing is launched eagerly"):
        predict(recorded(READ_BOUND), [parse("capture:prepare")])


def test_nothing_changes_nothing() -> None:
    made = predicted(READ_BOUND)
    assert made.predicted_ns == made.step_ns
    assert made.saving_ns == 0
    assert predicted(READ_BOUND, "speed-up:gemm=1").saving_ns == 0
