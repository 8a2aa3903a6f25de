"""Medians, spreads and states, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bubblescope.compare.devicework import judge
from bubblescope.compare.match import pairs, reads
from bubblescope.compare.model import Change, Figure, Middle, State, Verdict
from bubblescope.diagnose.model import ReadSite, Site


def middle(*values: int) -> Middle:
    return Middle.of(np.array(values, np.int64))


@pytest.mark.parametrize(
    ("values", "median", "spread"),
    [
        ((), None, None),
        ((5,), 5, None),
        ((5, 8), 6, 3),
        ((9, 1, 5), 5, 8),
        ((1, 2, 3, 4), 2, 3),  # (4 - 1) // 4 = 0: from end to end
        ((1, 2, 3, 4, 100), 3, 2),  # 2 to 4
        ((9, 8, 7, 6, 5, 4, 3, 2, 1), 5, 4),  # 3 to 7
    ],
)
def test_spread_lies_between_quartiles(values, median, spread):
    assert middle(*values) == Middle(median, spread)


def figure(a: tuple[int, ...], b: tuple[int, ...]) -> Figure:
    return Figure.between(middle(*a), middle(*b))


def test_a_difference_is_beyond_the_wider_spread_or_not():
    assert figure((1, 2, 3), (4, 5, 6)) == Figure(2, 5, 2)
    assert figure((1, 2, 3), (4, 5, 6)).beyond is True
    assert figure((1, 2, 3), (4, 5, 9)).beyond is False  # spread 5, difference 3
    assert figure((2, 2), (4, 4)).difference == 2
    assert figure((2,), (4, 4)).beyond is None
    assert figure((), (4, 4)).difference is None


def test_what_is_withheld_has_no_difference():
    withheld = Figure.between(middle(1, 1), middle(9, 9), withheld=True)
    assert (withheld.a, withheld.b) == (1, 9)
    assert (withheld.difference, withheld.beyond) == (None, None)


def change(count_a, count_b, count, ns=None) -> Change:
    return Change("kernel", "x", count_a, count_b, count, 0, 0, ns)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (change(0, 3, figure((0, 0), (1, 1))), State.APPEARED),
        (change(3, 0, figure((1, 1), (0, 0))), State.VANISHED),
        (change(3, 3, figure((1, 1), (1, 1))), State.SAME),
        (change(3, 6, figure((1, 1), (2, 2))), State.CHANGED),
        (change(3, 6, figure((1, 3), (2, 2))), State.SAME),  # counts differ from step to step
        (change(3, 3, figure((1, 1), (1, 1)), figure((100, 100), (102, 102))), State.CHANGED),
        (change(3, 3, figure((1, 1), (1, 1)), figure((100, 100), (101, 101))), State.SAME),
        (change(3, 3, figure((1, 1), (1, 1)), figure((100, 104), (103, 107))), State.SAME),
        (change(3, 4, figure((), ())), State.CHANGED),  # no steps: what is in all
        (change(3, 3, figure((), ())), State.SAME),
        (change(3, 9, figure((1,), (2,))), State.CHANGED),  # one step: no spread
        (change(3, 9, figure((1,), (1,))), State.SAME),
    ],
)
def test_state(found, state):
    assert found.state is state


SAME = figure((100, 100), (100, 100))


def family(a: int, b: int, ns_a: int, ns_b: int) -> Change:
    return change(a, b, figure((a, a), (b, b)), figure((ns_a, ns_a), (ns_b, ns_b)))


def test_device_work():
    steady, gone = family(1, 1, 1000, 1000), family(1, 0, 10, 0)
    assert judge([steady], SAME, "").verdict is Verdict.UNCHANGED
    # 10 ns of 1,010 are at most a hundredth.
    nearly = judge([steady, gone], SAME, "")
    assert (nearly.verdict, nearly.differing, nearly.differing_ns) == (Verdict.NEARLY, (gone,), 10)
    assert judge([steady, family(1, 0, 11, 0)], SAME, "").verdict is Verdict.CHANGED
    assert judge([steady], figure((100, 100), (101, 101)), "").verdict is Verdict.CHANGED
    assert judge([steady], figure((100,), (100,)), "").verdict is Verdict.NOT_KNOWN
    assert judge([steady], SAME, "levels").why == "levels"


def test_pairs_need_to_be_the_only_ones_of_a_key():
    assert pairs(["a1", "a2", "b1"], ["b1", "a1", "a3"], [str, lambda s: s[0]]) == [
        ("a1", "a1"),
        ("a2", "a3"),  # the only a left on either side
        ("b1", "b1"),
    ]
    assert pairs(["a1", "a2"], ["a3"], [str, lambda s: s[0]]) == [
        ("a1", None),
        ("a2", None),
        (None, "a3"),
    ]
    assert pairs(["a"], ["a"], [lambda _: None]) == [("a", None), (None, "a")]


def read(name, site=None, within=(), under="") -> ReadSite:
    return ReadSite(name, site, within, under, 1, 1, 1.0, 1, 1, 1, 1, 1, 1)


def test_reads_are_found_again_where_lines_moved():
    kept = read("sync", Site("/a/loop.py", 10, "step"))
    moved = read("sync", Site("/b/loop.py", 14, "step"))
    other = read("sync", Site("/b/loop.py", 30, "other"))
    (one, two) = reads([kept], [other, moved])
    assert (one.a, one.b) == (kept, moved)
    assert (two.a, two.b) == (None, other)


def test_reads_without_a_line_are_told_apart_by_what_is_around_them():
    a = [read("sync", None, ("step", "draft"), "draft"), read("sync", None, ("step",), "step")]
    b = [read("sync", None, ("step #", "draft"), "draft")]
    assert [(c.a, c.b) for c in reads(a, b)] == [(a[0], b[0]), (a[1], None)]
