"""Steps with hand-reasoned truth: where each begins, what is in it, and whether it is whole."""

from __future__ import annotations

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Part
from tests.synthetic import TraceBuilder


def test_steps_begin_where_their_first_bubble_does():
    # Each "decode" launches at +100 a kernel [+200, +500); one ran before the first. Steps begin
    # with the bubble that their first kernel ends, at 50, 500 and 1500; [0, 50) is a lead-in,
    # cut by the start of the recording.
    trace = TraceBuilder().launch("before", at=-100, dur=10, start=0, run=50)
    for k in range(3):
        trace.range("annotation", "decode", 1000 * k, 900)
        trace.launch("k", at=1000 * k + 100, dur=10, start=1000 * k + 200, run=300)
    timeline = trace.timeline()
    for marker in (None, "decode"):
        device = diagnose(timeline, marker=marker).devices[0]
        steps = device.steps
        kept = [i for i in range(len(steps.start)) if steps.whole[i]]
        assert [(int(steps.start[i]), int(steps.end[i])) for i in kept] == [
            (50, 500),
            (500, 1500),
            (1500, 2500),
        ]
        # Step at 50: 150 idle [50, 200): 50 gap, 10 call, 90 latency; then 700 idle in each.
        assert [int(steps.busy_ns[i]) for i in kept] == [300, 300, 300]
        assert [int(steps.parts_ns[i, Part.HOST_GAP]) for i in kept] == [50, 600, 600]
        assert [int(steps.parts_ns[i, Part.LAUNCH_LATENCY]) for i in kept] == [90, 90, 90]
        assert steps.median(steps.end - steps.start) == 1000


def decode_loop(steps: int) -> TraceBuilder:
    """A "decode" each 1,000, with a kernel [+200, +500) launched at +100."""
    trace = TraceBuilder()
    for k in range(steps):
        trace.range("annotation", "decode", 1000 * k, 900)
        trace.launch("k", at=1000 * k + 100, dur=10, start=1000 * k + 200, run=300)
    return trace


def whole(trace: TraceBuilder) -> list[tuple[int, int, bool]]:
    steps = diagnose(trace.timeline(), marker="decode").devices[0].steps
    columns = (steps.start.tolist(), steps.end.tolist(), steps.whole.tolist())
    return list(zip(*columns, strict=True))


def test_a_step_with_unknown_time_is_not_whole():
    # The launch of the kernel at 1,600 was not recorded: [1500, 1600) is unknown, and part of
    # the step that began at 500.
    trace = decode_loop(3)
    trace.orphan("orphan", start=1_600, run=20)
    assert whole(trace) == [(200, 500, True), (500, 1_620, False), (1_620, 2_500, True)]


def test_a_step_of_which_next_to_nothing_is_unknown_is_whole():
    # The orphan at 1,510 ends [1500, 1510): 10 of 1,030 are unknown. At 1,511: 11 of 1,031.
    for start, is_whole in ((1_510, True), (1_511, False)):
        trace = decode_loop(3)
        trace.orphan("orphan", start=start, run=20)
        assert whole(trace)[1] == (500, start + 20, is_whole)


def test_a_step_after_which_one_is_missing_is_not_whole():
    # The mark at 1,900 launches nothing, so that its step is missing and where the one before
    # it ends is not known. Whether the one after it has a part of it is not known either.
    trace = decode_loop(2).range("annotation", "decode", 1_900, 50)
    trace.range("annotation", "decode", 2_000, 900)
    trace.launch("k", at=2_100, dur=10, start=2_200, run=300)
    assert whole(trace)[:2] == [(200, 500, True), (500, 1_500, False)]


def test_two_replays_launched_in_the_same_nanosecond():
    # One mark for both, as nothing can lie between them; another process replays on a device too.
    trace = TraceBuilder().on(process=100)
    trace.graph(at=10, dur=1, nodes=[("a", 30, 1)], graph=3)
    nodes = [("a", 20, 1), ("b", 22, 1), ("c", 24, 1)]
    trace.on(device=1, thread=2).graph(at=10, dur=1, nodes=nodes, graph=3)
    trace.on(device=1, process=200).graph(at=0, dur=1, nodes=[("a", 50, 1)], graph=3)
    for device in diagnose(trace.timeline()).devices:
        table = device.steps
        assert (table.end[:-1] == table.start[1:]).all()


def test_marks_of_a_process_whose_only_work_has_no_launch():
    # Process 200 marks a "decode" too, but of its work only an orphan was recorded, before all
    # else. The steps of process 100 stand: a lead-in from 5, then one from the bubble at 8.
    trace = TraceBuilder().on(process=100)
    trace.range("annotation", "decode", 0, 10).range("annotation", "decode", 50, 8)
    trace.launch("k", at=0, dur=5, start=20, run=10)
    trace.on(process=200).range("annotation", "decode", 0, 8).orphan("o", start=5, run=3)
    table = diagnose(trace.timeline()).devices[0].steps
    assert list(zip(table.start.tolist(), table.end.tolist(), strict=True)) == [(5, 8), (8, 30)]


def marked(numbers: list[int], trace: TraceBuilder | None = None, twice: bool = False):
    """A recorded step mark each 1,000, with a kernel [+200, +500) launched at +100."""
    trace = trace or TraceBuilder()
    for k, number in enumerate(numbers):
        for _ in range(1 + twice):
            trace.step(number, 1000 * k, 900)
        trace.launch("k", at=1000 * k + 100, dur=10, start=1000 * k + 200, run=300)
    return trace


def numbers_of(trace: TraceBuilder, window: tuple[int, int] | None = None) -> list[int]:
    found = diagnose(trace.timeline(), window=window)
    return [int(n) for n in found.devices[0].steps.number]


def test_recorded_numbers_are_kept_where_they_rise():
    assert numbers_of(marked([7, 8, 10])) == [7, 8, 10]


def test_a_mark_that_is_there_twice_is_one():
    # Twice in the file, or in two threads a little later.
    late = marked([7, 8, 9]).step(7, 3, 900).step(9, 2_003, 900)
    for trace in (marked([7, 8, 9], twice=True), late):
        steps = diagnose(trace.timeline()).devices[0].steps
        assert steps.number.tolist() == [7, 8, 9]
        assert steps.whole.all()


def test_numbers_that_begin_again_are_counted_instead():
    # A profiler that was started twice: step 1 would be two steps, and --window 0:2 not one piece.
    trace = marked([0, 1, 2, 0, 1, 2])
    assert numbers_of(trace) == [0, 1, 2, 3, 4, 5]
    assert numbers_of(trace, window=(1, 5)) == [1, 2, 3, 4]


def test_numbers_of_one_rank_that_begin_again():
    # Ranks go by the same numbers, and what one of them recorded is no count.
    trace = marked([5, 6, 7, 8])
    marked([2, 1, 2, 3], trace.on(rank=1))
    found = diagnose(trace.timeline())
    assert [d.steps.number.tolist() for d in found.devices] == [[0, 1, 2, 3]] * 2
    assert found.steps.number.tolist() == [0, 1, 2, 3]
