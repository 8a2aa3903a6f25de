"""Columns as bytes, and the rows in which intervals are drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubblescope.errors import BubblescopeError
from bubblescope.view.columns import pack
from bubblescope.view.rows import rows
from tests.view_columns import unpack

NUMBERS = st.lists(st.integers(-(2**50), 2**50), max_size=50)


@given(NUMBERS, NUMBERS)
def test_columns_come_back_to_the_nanosecond(plain: list[int], rising: list[int]):
    columns = {"a": np.array(plain, np.int64), "b": np.array(sorted(rising), np.int64)}
    packed = pack(columns, frozenset({"b"}))
    for name, values in columns.items():
        assert unpack(packed, name).tolist() == values.tolist()


def test_how_a_column_lies_in_the_bytes():
    packed = pack({"a": np.array([0, -1, 1, 300, -1])}, frozenset())
    # Zigzag makes these 0, 1, 2, 600, 1: low bytes of all, then high bytes of all.
    assert packed.data == bytes([0, 1, 2, 600 % 256, 1]) + bytes([0, 0, 0, 600 // 256, 0])
    packed = pack({"a": np.array([10, 13, 13, 12])}, frozenset({"a"}))
    assert packed.data == bytes([20, 6, 0, 1])  # 10, +3, 0, -1


def test_constant_zero_takes_no_room():
    assert pack({"a": np.zeros(1_000, np.int64)}, frozenset()).data == b""


def test_what_a_page_cannot_hold_exactly_is_refused():
    with pytest.raises(BubblescopeError, match="a has values over"):
        pack({"a": np.array([2**53])}, frozenset())


INTERVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=40
)


@given(INTERVALS)
def test_none_covers_another_and_no_row_is_wasted(found: list[tuple[int, int, int]]):
    lane, start, length = (np.array(column, np.int64) for column in zip(*found, strict=True))
    end = start + length
    row = rows(lane, start, end)
    for i in range(len(row)):
        for j in range(i):
            if (lane[i], row[i]) == (lane[j], row[j]):
                assert end[i] <= start[j] or end[j] <= start[i]
    for number in set(lane.tolist()):
        mine = lane == number
        deepest = max(
            int(((start[mine] <= t) & (end[mine] > t)).sum()) for t in range(int(end.max()) + 1)
        )
        empty = int((length[mine] == 0).sum())
        assert row[mine].max() + 1 <= max(1, deepest) + empty


def test_what_nests_lies_below_what_it_is_inside_of():
    lane = np.zeros(5, np.int64)
    start = np.array([0, 0, 10, 12, 40])
    end = np.array([50, 30, 20, 15, 45])
    assert rows(lane, start, end).tolist() == [0, 1, 2, 3, 1]
