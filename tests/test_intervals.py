"""The interval arithmetic and the rows of threads, against definitions that are slow and plain."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bubblescope.timeline import HostCalls, Meta, Ranges, Timeline
from bubblescope.timeline.intervals import IntervalIndex, covered_before, in_order, runs
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads

quick = settings(deadline=None)

Interval = tuple[int, int]

EPOCH = 1_800_000_000_000_000_000
"""Times as recordings give them, in ns since 1970: sums of six of them do not fit into int64."""

BASES = st.sampled_from([0, EPOCH, -5])
SMALL = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 8)).map(lambda x: (x[0], x[0] + x[1])),
    max_size=14,
)
"""On a grid so small that they nest, cross, touch, coincide and are empty."""


@st.composite
def nested(draw: st.DrawFn) -> list[Interval]:
    """Calls of a program: each lies within the one around it."""
    found: list[Interval] = []

    def fill(start: int, end: int, depth: int) -> None:
        edges = draw(st.lists(st.integers(start, end), max_size=6).map(sorted))
        for low, high in zip(edges[::2], edges[1::2], strict=False):
            found.append((low, high))
            if depth < 3 and high > low:
                fill(low, high, depth + 1)

    fill(0, 40, 0)
    return found


FLAT = st.lists(st.integers(0, 40), max_size=24).map(
    lambda edges: list(zip(*[iter(sorted(edges))] * 2, strict=False))
)
"""One after the other, as calls on one thread mostly are."""

INTERVALS = SMALL | nested() | FLAT
TIMES = list(range(-2, 43))


def ordered(intervals: list[Interval]) -> list[Interval]:
    """By start, the longer of equal starts first."""
    return sorted(intervals, key=lambda x: (x[0], -x[1]))


def columns(intervals: list[Interval], base: int) -> tuple[Int, Int]:
    pairs = np.array(intervals, np.int64).reshape(-1, 2) + base
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def last_covering(intervals: list[Interval], before: int, time: int) -> int:
    covering = [row for row, (start, end) in enumerate(intervals[:before]) if start <= time < end]
    return max(covering, default=-1)


@quick
@given(INTERVALS, BASES)
def test_innermost_began_last(intervals: list[Interval], base: int) -> None:
    rows = ordered(intervals)
    index = IntervalIndex(*columns(rows, base))
    found = index.innermost(np.array(TIMES, np.int64) + base).tolist()
    for time, row in zip(TIMES, found, strict=True):
        covering = [x for x in rows if x[0] <= time < x[1]]
        if not covering:
            assert row == -1
            continue
        latest = max(start for start, _ in covering)
        assert rows[row] == (latest, min(end for start, end in covering if start == latest))


@quick
@given(INTERVALS, BASES)
@example([(0, 40), (2, 30), (2, 30), (2, 2), (5, 35)], EPOCH)
def test_enclosing_goes_outward_through_all_that_cover(
    intervals: list[Interval], base: int
) -> None:
    rows = ordered(intervals)
    index = IntervalIndex(*columns(rows, base))
    at = np.array(TIMES, np.int64) + base
    inner = index.innermost(at)
    expected = [last_covering(rows, len(rows), time) for time in TIMES]
    assert inner.tolist() == expected
    for _ in range(len(rows) + 1):
        expected = [
            last_covering(rows, max(row, 0), time)
            for row, time in zip(expected, TIMES, strict=True)
        ]
        inner = index.enclosing(inner, at)
        assert inner.tolist() == expected
    assert set(inner.tolist()) == {-1}


@quick
@given(INTERVALS, st.data())
def test_enclosing_of_any_interval_at_its_own_start(
    intervals: list[Interval], data: st.DataObject
) -> None:
    rows = ordered(intervals)
    which = data.draw(st.lists(st.integers(0, max(len(rows) - 1, 0)), max_size=8)) if rows else []
    start, end = columns(rows, EPOCH)
    inner = np.array(which, np.int64)
    found = IntervalIndex(start, end).enclosing(inner, start[inner]).tolist()
    assert found == [last_covering(rows, row, rows[row][0]) for row in which]


def test_no_intervals_and_no_times() -> None:
    none = np.zeros(0, np.int64)
    assert IntervalIndex(none, none).innermost(np.array([1, 2])).tolist() == [-1, -1]
    some = IntervalIndex(np.array([0, 1]), np.array([9, 5]))
    assert some.innermost(none).tolist() == []
    assert some.enclosing(none, none).tolist() == []


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65])
def test_chains_of_any_depth(count: int) -> None:
    # [0, 2n) holds [1, 2n-1), and so on: at n all of them are open, at k the first k + 1.
    start = np.arange(count)
    index = IntervalIndex(start, 2 * count - start)
    at = np.arange(-1, 2 * count + 2)
    depth = [min(t, count - 1, 2 * count - 1 - t) if 0 <= t < 2 * count else -1 for t in at]
    assert index.innermost(at).tolist() == depth
    assert index.enclosing(index.innermost(at), at).tolist() == [max(d - 1, -1) for d in depth]


@quick
@given(SMALL, BASES)
@example([(0, 1)] * 14, EPOCH)
def test_covered_before_adds_up_what_lies_before(intervals: list[Interval], base: int) -> None:
    found = covered_before(*columns(intervals, base), np.array(TIMES, np.int64) + base)
    assert found.tolist() == [
        sum(max(0, min(end, time) - start) for start, end in intervals) for time in TIMES
    ]


@quick
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12))
def test_in_order(values: list[int]) -> None:
    given_ = np.array(values, np.int64)
    assert in_order(given_).tolist() == sorted(values)
    assert given_.tolist() == values


@quick
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=16))
def test_runs_of_equal_keys(rows: list[tuple[int, int]]) -> None:
    one = np.array([a for a, _ in rows], np.int64)
    other = np.array([b for _, b in rows], np.int32)
    first, length = runs(one, other)
    groups = [len(list(group)) for _, group in groupby(rows)]
    assert length.tolist() == groups
    assert first.tolist() == [sum(groups[:n]) for n in range(len(groups))]
    assert first.dtype == length.dtype == np.int64


# Threads ---------------------------------------------------------------------------------------

Key = tuple[int, int, int]

KEYS = st.tuples(st.integers(0, 1), st.sampled_from([-1, 7]), st.integers(0, 2))
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 5)), max_size=12)
"""((rank, process, thread), start)"""


def columns_of(rows: list[tuple[Key, int]]) -> dict[str, list[int]]:
    start = [time for _, time in rows]
    names = ("rank", "process", "thread")
    keys = {name: [key[n] for key, _ in rows] for n, name in enumerate(names)}
    return keys | {"start": start, "end": start}


@quick
@given(ROWS, ROWS)
def test_threads_and_their_rows(calls: list[tuple[Key, int]], spans: list[tuple[Key, int]]) -> None:
    timeline = Timeline.of(
        Meta("drawn", "none"),
        host_calls=HostCalls.build(len(calls), **columns_of(calls)),
        ranges=Ranges.build(len(spans), **columns_of(spans)),
    )
    threads = Threads(timeline)

    def keys_of(table: HostCalls | Ranges) -> list[Key]:
        columns_ = (table.rank.tolist(), table.process.tolist(), table.thread.tolist())
        return list(zip(*columns_, strict=True))

    by_row, range_keys = keys_of(timeline.host_calls), keys_of(timeline.ranges)
    for key in {k for k, _ in [*calls, *spans]} | {(5, 5, 5)}:
        number = threads.id_of(*key)
        if key not in by_row:
            assert number is None  # it made no call
            continue
        assert number is not None
        assert threads.rank(number) == key[0]
        assert by_row[threads.calls(number)] == [key] * by_row.count(key)
        assert range_keys[threads.ranges(number)] == [key] * range_keys.count(key)
    numbers = [threads.id_of(*key) for key in by_row]
    assert threads.of_call.tolist() == numbers
    assert sorted(set(numbers)) == list(range(len(set(by_row))))
