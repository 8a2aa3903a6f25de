"""What-ifs as text, what they fit, and what they say where they fit nothing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bubblescope.diagnose import diagnose
from bubblescope.errors import BubblescopeError
from bubblescope.predict import Graph, parse, predict
from bubblescope.predict.whatifs import (
    Capture,
    Merge,
    OffPath,
    OfPass,
    Pdl,
    SpeedUp,
    WithoutLaunch,
    WithoutRead,
    WithoutWait,
)
from bubblescope.timeline import Frames, Timeline
from tests.machine import Instruction, Launch, Read, Work, recorded
from tests.synthetic import TraceBuilder


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("read:engine.py:12", WithoutRead("engine.py:12")),
        ("wait:cudaStreamSynchronize", WithoutWait("cudaStreamSynchronize")),
        ("launch:copy*", WithoutLaunch("copy*")),
        ("host:draft", OffPath("draft")),
        ("merge:fill", Merge("fill")),
        ("capture:step[DECODE bs=1]", Capture("step[DECODE bs=1]")),
        ("speed-up:gemm=2", SpeedUp("gemm", Fraction(2))),
        ("speed-up:a=b=3/2", SpeedUp("a=b", Fraction(3, 2))),
        ("pdl:gemm", Pdl("gemm")),
        ("pdl:gemm=1.5", Pdl("gemm", 1_500)),
        ("pdl:*=0.25", Pdl("*", 250)),
    ],
)
def test_text(text: str, made: Any) -> None:
    assert parse(text) == made
    assert parse(parse(text).text) == made


@pytest.mark.parametrize(
    "text", ["", "read", "read:", "nonsense:x", "speed-up:gemm", "speed-up:gemm=fast"]
)
def test_text_that_says_nothing(text: str) -> None:
    with pytest.raises(BubblescopeError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "speed-up:gemm=0",
        "speed-up:gemm=-1",
        "speed-up:gemm=1e30",
        "speed-up:gemm=1e-30",
        "pdl:gemm=-1",
        "pdl:gemm=1e30",
    ],
)
def test_figures_that_mean_nothing(text: str) -> None:
    with pytest.raises(BubblescopeError, match=r"must|cannot"):
        parse(text)


def test_a_factor_with_many_digits() -> None:
    """Times in ns times a denominator of 10^18 would not fit into int64."""
    graph = Graph(recorded(LOOP))
    edit = graph.edit()
    parse("speed-up:norm=1.000000000000000001").apply(graph, edit)
    assert np.array_equal(edit.run, graph.op_ns)


LOOP: list[Instruction] = [Launch("gemm<1>", 30_000), Launch("norm", 2_000), Read(), Work(9_000)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("read:engine.py:12", "no such blocking read; the recording has cudaStreamSynchronize in "),
        ("launch:softmax", "no such operation; the recording has gemm<1>, norm"),
        ("speed-up:softmax=2", "no such operation; the recording has gemm<1>, norm"),
        ("merge:softmax", "no such run of launches; the recording has gemm<1>, norm"),
        ("capture:draft", "no such range; the recording has prepare, step"),
        ("host:draft", "no such host work; the recording has prepare, step, cuda"),
    ],
)
def test_what_fits_nothing_lists_what_there_is(text: str, says: str) -> None:
    with pytest.raises(BubblescopeError) as refused:
        predict(recorded(LOOP), [parse(text)])
    assert str(refused.value).startswith(f"{text}: ")
    assert says in str(refused.value)


def test_a_name_is_a_part_of_it_and_stars_stand_for_anything() -> None:
    graph = Graph(recorded(LOOP))
    for pattern, fits in (("gemm<1>", "gemm<1>"), ("g*>", "gemm<1>"), ("or", "norm")):
        edit = graph.edit()
        SpeedUp(pattern, Fraction(2)).apply(graph, edit)
        changed = np.flatnonzero(edit.run != graph.op_ns)
        assert {graph.timeline.device_ops.name[int(row)] for row in changed} == {fits}


# Sites ---------------------------------------------------------------------------------------


def with_sites() -> Timeline:
    """Two reads a step, on lines 63 and 639 of one file, in functions of two names."""
    trace = TraceBuilder()
    frames = Frames.build(
        2, file=["/srv/engine.py", "/srv/engine.py"], line=[63, 639], function=["A.take", "give"]
    )
    for n in range(12):
        at = n * 100_000
        trace.range("annotation", "step", at, 90_000)
        for frame in (0, 1):
            begin = at + frame * 40_000
            trace.launch("gemm", begin, 4_000, begin + 6_500, 20_000)
            trace.call("cudaStreamSynchronize", begin + 5_000, 25_000, frame=frame)
            trace.calls[-1] |= {"sync": "stream", "stream": 7}
    for call in trace.calls:
        call.setdefault("frame", -1)
    made = trace.timeline()
    return Timeline.of(
        made.meta,
        device_ops=made.device_ops,
        host_calls=made.host_calls,
        ranges=made.ranges,
        frames=frames,
    )


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("engine.py:63", {63}),
        ("engine.py:639", {639}),
        ("/srv/engine.py:639", {639}),
        ("engine.py", {63, 639}),
        ("*.py:63", {63}),
        ("take", {63}),
        ("give", {639}),
        ("nowhere|give", {639}),
        ("cudaStreamSynchronize", {63, 639}),
        ("step", {63, 639}),
    ],
)
def test_sites(pattern: str, lines: set[int]) -> None:
    timeline = with_sites()
    graph = Graph(timeline)
    edit = graph.edit()
    WithoutRead(pattern).apply(graph, edit)
    gone = timeline.host_calls.frame[edit.gone_calls]
    assert {int(timeline.frames.line[f]) for f in gone} == lines
    assert len(gone) == 12 * len(lines)


def test_a_site_that_is_not_there_lists_lines() -> None:
    with pytest.raises(BubblescopeError, match=r"has /srv/engine.py:63, /srv/engine.py:639$"):
        predict(with_sites(), [WithoutRead("engine.py:640")])


# What goes with a read -----------------------------------------------------------------------


def test_a_read_goes_with_its_copy_and_its_op() -> None:
    """An item(): an op of 60 us around a copy and a synchronise; 5 us of other work after it."""
    trace = TraceBuilder()
    for n in range(12):
        at = n * 200_000
        trace.range("annotation", "step", at, 150_000)
        trace.launch("gemm", at, 4_000, at + 6_500, 20_000)
        trace.range("op", "aten::item", at + 10_000, 60_000)
        trace.call("cudaStreamIsCapturing", at + 12_000, 1_000)
        trace.copy("DtoH", at + 15_000, 8_000, at + 27_800, 2_000, memory="Pinned")
        trace.sync(at + 24_000, 9_000)
    timeline = trace.timeline()
    graph = Graph(timeline, diagnose(timeline).clocks.shift)
    edit = graph.edit()
    WithoutRead("aten::item").apply(graph, edit)
    assert int(edit.gone.sum()) == 12
    names = timeline.host_calls.name.take(edit.gone_calls).to_list()
    assert sorted(set(names)) == [
        "cudaMemcpyAsync",
        "cudaStreamIsCapturing",
        "cudaStreamSynchronize",
    ]
    times = graph.replay(edit)
    # Sixty microseconds a step less: all of the op, and nothing else.
    first = np.flatnonzero(timeline.host_calls.name.where(lambda name: "Launch" in name))
    begins = times.begin[graph.spans.of_call[first]]
    assert np.diff(begins).tolist() == [140_000] * 11


def test_a_pass_that_says_nothing() -> None:
    with pytest.raises(BubblescopeError, match="does not say what it does"):
        OfPass.declared("mystery", ())


def test_a_pass_is_all_that_it_declares() -> None:
    both = OfPass.declared("both", ["read:cudaStreamSynchronize", "speed-up:gemm=2"])
    apart = [parse("read:cudaStreamSynchronize"), parse("speed-up:gemm=2")]
    timeline = recorded(LOOP)
    assert predict(timeline, [both]).predicted_ns == predict(timeline, apart).predicted_ns
    with pytest.raises(BubblescopeError, match=r"^pass other: read:nowhere: no such"):
        predict(timeline, [OfPass.declared("other", ["read:nowhere"])])


def test_a_copy_that_is_a_read_of_its_own_stays() -> None:
    """A copy that blocks under an op, and right after it a synchronise under none: two reads."""
    trace = TraceBuilder()
    for k in range(6):
        t = k * 100_000
        trace.step(k, t, 90_000)
        trace.launch("gemm", t, 5_000, t + 7_000, 40_000)
        trace.copy("DtoH", t + 10_000, 42_000, t + 48_000, 1_000)
        trace.range("op", "aten::item", t + 10_000, 42_000)
        trace.sync(t + 55_000, 4_000, row="stream")
    graph = Graph(trace.timeline())
    edit = graph.edit()
    parse("read:cudaStreamSynchronize").apply(graph, edit)
    assert not edit.gone.any()
    assert edit.gone_calls.sum() == 6
    edit = graph.edit()
    parse("read:cudaMemcpyAsync").apply(graph, edit)
    assert edit.gone.sum() == 6


@pytest.mark.parametrize("text", ["launch:gemm", "merge:gemm", "speed-up:gemm=2", "pdl:gemm"])
def test_a_recording_without_a_host_call(text: str) -> None:
    trace = TraceBuilder()
    for k in range(4):
        trace.orphan("gemm", 10_000 * k, 5_000)
    graph = Graph(trace.timeline())
    edit = graph.edit()
    parse(text).apply(graph, edit)
    assert edit.gone.all() == text.startswith("launch")
    assert len(graph.replay(edit).start) == 4
