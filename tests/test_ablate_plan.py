"""What is measured, how often and in which order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubblescope.ablate.plan import Plan, alternate, groups, rungs, whole_rounds
from bubblescope.errors import BubblescopeError

A, B, C = ("a",), ("b",), ("c",)


def rows(passes: list[tuple[str, ...]], ladder: str) -> list[tuple[str, tuple[str, ...], int]]:
    return [(r.label, r.passes, r.against) for r in rungs(passes, ladder)]


def test_cumulative_adds_each_to_those_above_and_compares_with_the_row_above() -> None:
    assert rows([A, B, C], "cumulative") == [
        ("none", (), -1),
        ("+ a", ("a",), 0),
        ("+ b", ("a", "b"), 1),
        ("+ c", ("a", "b", "c"), 2),
    ]


def test_alone_compares_each_with_none() -> None:
    assert rows([A, B], "alone") == [("none", (), -1), ("a", A, 0), ("b", B, 0)]


def test_leave_one_out_compares_with_all_in_order() -> None:
    assert rows([A, B, C], "leave-one-out") == [
        ("none", (), -1),
        ("all", ("a", "b", "c"), 0),
        ("all without a", ("b", "c"), 1),
        ("all without b", ("a", "c"), 1),
        ("all without c", ("a", "b"), 1),
    ]
    assert rows([A], "leave-one-out") == [("none", (), -1), ("a", A, 0)]


def test_passes_that_go_together() -> None:
    assert rows([("a", "b"), C], "cumulative")[1:] == [
        ("+ a + b", ("a", "b"), 0),
        ("+ c", ("a", "b", "c"), 1),
    ]
    assert rows([A, ("a", "b")], "alone")[1:] == [("a", A, 0), ("a + b", ("a", "b"), 0)]


@pytest.mark.parametrize(
    ("passes", "ladder", "said"),
    [
        ([A], "up", "no ladder 'up'; there are: cumulative, alone, leave-one-out"),
        ([], "alone", "no pass to measure"),
        ([A, A], "alone", "named twice"),
        ([A, ("a", "b")], "cumulative", "pass a is in several groups"),
        ([("a", "a")], "leave-one-out", "pass a is in several groups"),
    ],
)
def test_what_is_no_ladder(passes: list[tuple[str, ...]], ladder: str, said: str) -> None:
    with pytest.raises(BubblescopeError, match=said):
        rungs(passes, ladder)


def test_rungs_that_differ_by_live_passes_share_a_process() -> None:
    made = rungs([A, B, C], "cumulative")
    assert groups(made, ["a", "b", "c"]) == ((0, 1, 2, 3),)
    assert groups(made, []) == ((0,), (1,), (2,), (3,))
    # Only b needs a restart: it parts those without it from those with it.
    assert groups(made, ["a", "c"]) == ((0, 1), (2, 3))
    assert groups(rungs([A, B], "alone"), ["a"]) == ((0, 1), (2,))


def test_two_alternate_as_a_b_b_a() -> None:
    turns = ["".join(alternate("AB", turn)) for turn in range(8)]
    assert turns == ["AB", "BA", "BA", "AB", "AB", "BA", "BA", "AB"]


@given(st.integers(1, 7))
def test_each_is_in_each_place_equally_often(count: int) -> None:
    places = Counter(
        (item, place)
        for turn in range(2 * count)
        for place, item in enumerate(alternate(range(count), turn))
    )
    assert set(places.values()) == {2}
    assert len(places) == count * count


def test_rounds_go_on_alternating_over_starts() -> None:
    made = rungs([A], "alone")
    together = Plan("alone", made, ((0, 1),), starts=2, rounds=3)
    assert together.order(0) == [((0, 1), [[0, 1], [1, 0], [1, 0]])]
    assert together.order(1) == [((0, 1), [[0, 1], [0, 1], [1, 0]])]
    apart = Plan("alone", made, ((0,), (1,)), starts=4, rounds=1)
    assert [[group for group, _ in apart.order(s)] for s in range(4)] == [
        [(0,), (1,)],
        [(1,), (0,)],
        [(1,), (0,)],
        [(0,), (1,)],
    ]


def test_a_round_counts_where_one_part_measured_every_rung() -> None:
    plan = Plan("alone", rungs([A], "alone"), ((0, 1),))
    measured = [
        (0, 0, 0, 0),
        (0, 0, 0, 1),
        (0, 0, 1, 0),  # cut off here
        (1, 0, 1, 1),  # the other half in another part makes no round
        (1, 1, 0, 0),
        (1, 1, 0, 1),
    ]
    assert set(whole_rounds(plan, measured)) == {(0, 0, 0), (1, 1, 0)}
