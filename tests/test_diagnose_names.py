from __future__ import annotations

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.names import generic, merged
from bubblescope.timeline import Ranges
from tests.synthetic import TraceBuilder


def names(*rows: tuple[str, str]) -> list[str]:
    kinds, found = zip(*rows, strict=True)
    made = Ranges.build(len(rows), rank=0, process=1, kind=list(kinds), name=list(found))
    return merged(made).to_list()


@pytest.mark.parametrize(
    ("name", "open_"),
    [
        ("decode 12", "decode #"),
        ("step[DECODE] #12", "step[DECODE] #"),
        ("step[bs=1 q=30]", "step[bs=# q=#]"),
        ("plan", "plan"),
    ],
)
def test_numbers_are_left_open(name, open_):
    assert generic(name) == open_
    assert generic(open_) == open_


def test_annotations_that_differ_in_a_number_are_one():
    assert names(("annotation", "decode 1"), ("annotation", "decode 2")) == ["decode #"] * 2


def test_an_annotation_with_one_number_keeps_it():
    assert names(("annotation", "bs=1"), ("annotation", "bs=1")) == ["bs=1", "bs=1"]


def test_ops_and_frames_keep_their_numbers_but_for_counts():
    rows = [
        ("op", "aten::conv1d"),
        ("op", "aten::conv2d"),
        ("op", "ProfilerStep#7"),
        ("python", "serve.py(3): f"),
        ("python", "serve.py(9): f"),
    ]
    assert names(*rows) == [*[n for _, n in rows[:2]], "ProfilerStep#", *[n for _, n in rows[3:]]]


def test_numbered_annotations_fill_host_gaps_under_one_name():
    trace = TraceBuilder()
    for k in range(6):
        t = 100_000 * k
        trace.range("annotation", f"decode {k}", at=t, dur=90_000)
        trace.launch("one", at=t + 60_000, dur=5_000, start=t + 66_000, run=20_000)
    named, nothing = diagnose(trace.timeline()).fillers
    # From the second step on nothing runs from t-14 us on, and the launch begins at t+60: 4 us at
    # the end of the `decode` before, 10 between the two, 60 in this one.
    assert (named.name, named.count, named.ns) == ("decode #", 6, 5 * 64_000)
    assert (nothing.name, nothing.ns) == ("", 5 * 10_000)


def test_a_launch_call_without_a_name_is_a_finding_all_the_same() -> None:
    # The bubble [150,230) is ended by the second: host gap to 200, its call to 220, latency to 230.
    trace = TraceBuilder().launch("a", at=10, dur=5, start=100, run=50)
    trace.launch("b", at=200, dur=20, start=230, run=50, call="")
    titles = {f.title: f.exposed_idle_ns for f in diagnose(trace.timeline()).findings}
    assert titles["Launch calls without a name run while the device is dry"] == 20
