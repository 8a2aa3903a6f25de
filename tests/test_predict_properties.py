"""What must hold of every replay, whatever the recording."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bubblescope.diagnose import diagnose
from bubblescope.errors import BubblescopeError
from bubblescope.predict import predict
from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph, Times
from bubblescope.predict.hostedit import remove_calls
from bubblescope.predict.moved import moved
from bubblescope.predict.ranking import ranked
from bubblescope.predict.whatifs import Pdl, SpeedUp
from bubblescope.timeline import Timeline
from tests.strategies import nonsense, recordings


def graph_of(timeline: Timeline) -> Graph:
    """The graph, on clocks that contradict nothing."""
    diagnosis = diagnose(timeline)
    graph = Graph(timeline, diagnosis.clocks.shift)
    # A replay keeps what must come before what; a recording that does not cannot come out again.
    launch = graph.causes.launch
    known = launch >= 0
    order = graph.queues.order
    assume((graph.start[order[known]] >= graph.spans.begin[launch[known]]).all())
    assume((graph.end[graph.waits.op] <= graph.spans.end[graph.waits.span]).all())
    crossing = graph.causes.crossings
    assume((graph.end[crossing.source] <= graph.start[order[crossing.target]]).all())
    return graph


def same_as_recorded(graph: Graph, times: Times) -> bool:
    ops, spans = graph.timeline.device_ops, graph.spans
    return bool(
        np.array_equal(times.start, ops.start)
        and np.array_equal(times.end, ops.end)
        and np.array_equal(times.begin, spans.begin)
        and np.array_equal(times.back, spans.end)
    )


def no_later(times: Times, than: Times, gone: np.ndarray) -> bool:
    """Whether nothing that is left begins or ends later."""
    return bool(
        (times.start[~gone] <= than.start[~gone]).all()
        and (times.end[~gone] <= than.end[~gone]).all()
        and (times.begin <= than.begin).all()
        and (times.back <= than.back).all()
    )


@settings(max_examples=300, deadline=None)
@given(recordings())
def test_an_unchanged_replay_is_the_recording(timeline: Timeline) -> None:
    graph = graph_of(timeline)
    edit = graph.edit()
    times = graph.replay(edit)
    assert same_as_recorded(graph, times)
    assert moved(graph, times, edit) == timeline


@settings(max_examples=150, deadline=None)
@given(recordings(), st.data())
def test_removing_calls_makes_nothing_later(timeline: Timeline, data: st.DataObject) -> None:
    graph = graph_of(timeline)
    rows = st.integers(0, len(timeline.host_calls) - 1)
    removed = data.draw(st.lists(rows, min_size=1, max_size=4, unique=True))
    edit = graph.edit()
    remove_calls(graph, edit, np.array(sorted(removed)))
    assert no_later(graph.replay(edit), graph.replay(), edit.gone)


@settings(max_examples=150, deadline=None)
@given(recordings(), st.sampled_from(["waits", "launches", "crosses"]), st.data())
def test_no_edge_holds_things_up_less(timeline: Timeline, kind: str, data: st.DataObject) -> None:
    graph = graph_of(timeline)
    edit = graph.edit()
    mask = getattr(edit, kind)
    assume(len(mask))
    mask[data.draw(st.integers(0, len(mask) - 1))] = False
    assert no_later(graph.replay(edit), graph.replay(), edit.gone)


@settings(max_examples=100, deadline=None)
@given(recordings(), st.sampled_from([Fraction(1), Fraction(3, 2), Fraction(2), Fraction(1000)]))
def test_faster_operations_make_nothing_later(timeline: Timeline, factor: Fraction) -> None:
    graph = graph_of(timeline)
    edit = graph.edit()
    SpeedUp("*", factor).apply(graph, edit)
    times = graph.replay(edit)
    if factor == 1:
        assert same_as_recorded(graph, times)
    ends, recorded = times.end, timeline.device_ops.end
    assert (ends <= recorded).all()
    assert (times.begin <= graph.spans.begin).all()
    assert (times.back <= graph.spans.end).all()


@settings(max_examples=100, deadline=None)
@given(recordings(), st.integers(0, 5_000))
def test_overlap_makes_nothing_end_later(timeline: Timeline, prologue: int) -> None:
    graph = graph_of(timeline)
    edit = graph.edit()
    try:
        Pdl("*", prologue).apply(graph, edit)
    except BubblescopeError:
        assume(False)
    times = graph.replay(edit)
    assert (times.end <= timeline.device_ops.end).all()
    assert (times.back <= graph.spans.end).all()


@settings(max_examples=100, deadline=None)
@given(recordings(), st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_a_replayed_timeline_keeps_its_order(timeline: Timeline, removed: list[int]) -> None:
    graph = graph_of(timeline)
    edit = graph.edit()
    remove_calls(graph, edit, np.unique(np.array(removed) % len(timeline.host_calls)))
    made = moved(graph, graph.replay(edit), edit)
    assert len(made.device_ops) == len(timeline.device_ops) - edit.gone.sum()
    assert len(made.host_calls) == len(timeline.host_calls) - edit.gone_calls.sum()
    assert (made.ranges.end >= made.ranges.start).all()
    assert (made.host_calls.end >= made.host_calls.start).all()
    assert (made.device_ops.end >= made.device_ops.start).all()


@settings(max_examples=200, deadline=None)
@given(nonsense())
def test_nonsense_is_replayed_or_refused(timeline: Timeline) -> None:
    try:
        graph = Graph(timeline)
        edit: Edit = graph.edit()
        times = graph.replay(edit)
    except BubblescopeError:
        return
    assert len(times.start) == len(timeline.device_ops)
    moved(graph, times, edit)


@settings(max_examples=200, deadline=None)
@given(st.one_of(recordings(), recordings(marked=True), nonsense()))
def test_ranking_keeps_every_finding(timeline: Timeline) -> None:
    before = diagnose(timeline)
    after = ranked(timeline, before)
    assert {f.title for f in after.findings} == {f.title for f in before.findings}
    assert len(after.findings) == len(before.findings)
    flags = [f.ranked for f in after.findings]
    assert flags == sorted(flags, reverse=True)


@settings(max_examples=150, deadline=None)
@given(st.one_of(recordings(marked=True), nonsense()))
def test_a_prediction_is_made_or_withheld(timeline: Timeline) -> None:
    made = predict(timeline, [SpeedUp("*", Fraction(2))])
    assert (made.predicted_ns is None) == bool(made.withheld)
    if not made.withheld:
        assert made.replayed_ns is not None
        assert made.step_ns is not None
        assert 100 * abs(made.replayed_ns - made.step_ns) <= made.step_ns
