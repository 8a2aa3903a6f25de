from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bubblescope.timeline import Coded

quick = settings(deadline=None)

STRINGS = st.lists(st.sampled_from(["", "a", "b", "aten::mm", "名前", "\x00\n", "a "]), max_size=12)
"""Few distinct ones, so that they repeat."""


def shuffled(column: Coded) -> Coded:
    """The same rows under a dictionary in another order, with an entry that no row uses."""
    width = len(column.values)
    codes = np.array([width - c for c in column.codes.tolist()], np.int32)
    return Coded(codes, ("not used", *reversed(column.values)))


@quick
@given(STRINGS)
def test_reads_back_row_by_row(strings: list[str]) -> None:
    column = Coded.of(strings)
    assert column.to_list() == strings
    assert len(column) == len(strings)
    assert [column[row] for row in range(len(strings))] == strings
    assert column.codes.dtype == np.int32


def test_codes_come_in_order_of_first_appearance() -> None:
    column = Coded.of(["b", "a", "b", "c"])
    assert column.values == ("b", "a", "c")
    assert column.codes.tolist() == [0, 1, 0, 2]


def test_constant() -> None:
    assert Coded.constant("x", 3) == Coded.of(["x", "x", "x"])
    assert Coded.constant("x", 0) == Coded.of([])


@quick
@given(STRINGS, STRINGS)
def test_equal_where_they_read_the_same(one: list[str], other: list[str]) -> None:
    assert (Coded.of(one) == Coded.of(other)) == (one == other)
    assert Coded.of(one) == shuffled(Coded.of(one))
    assert Coded.of(one) != one


@quick
@given(st.lists(STRINGS, max_size=4))
def test_concat(parts: list[list[str]]) -> None:
    columns = [Coded.of(p) if n % 2 else shuffled(Coded.of(p)) for n, p in enumerate(parts)]
    joined = Coded.concat(columns)
    assert joined.to_list() == [s for p in parts for s in p]
    assert len(set(joined.values)) == len(joined.values)


@quick
@given(STRINGS)
def test_recoded_under_a_dictionary_that_grows(strings: list[str]) -> None:
    seen = {"b": 0, "zz": 1}
    codes = Coded.of(strings).recoded(seen)
    names = {code: name for name, code in seen.items()}
    assert [names[c] for c in codes.tolist()] == strings
    assert (seen["b"], seen["zz"]) == (0, 1)
    assert sorted(seen.values()) == list(range(len(seen)))


@quick
@given(STRINGS, st.data())
def test_take(strings: list[str], data: st.DataObject) -> None:
    column = Coded.of(strings)
    mask = data.draw(st.lists(st.booleans(), min_size=len(strings), max_size=len(strings)))
    kept = [s for s, keep in zip(strings, mask, strict=True) if keep]
    assert column.take(np.array(mask, np.bool_)).to_list() == kept
    assert column.take(np.flatnonzero(mask)).to_list() == kept
    assert column.take(slice(1, None)).to_list() == strings[1:]


@quick
@given(STRINGS)
def test_where_and_map_ask_once_a_distinct_string(strings: list[str]) -> None:
    column = Coded.of(strings)
    asked: list[str] = []

    def short(name: str) -> bool:
        asked.append(name)
        return len(name) < 2

    assert column.where(short).tolist() == [len(s) < 2 for s in strings]
    assert sorted(asked) == sorted(set(strings))
    asked.clear()

    def first_letter(name: str) -> str:
        asked.append(name)
        return name[:1]

    cut = column.map(first_letter)
    assert cut.to_list() == [s[:1] for s in strings]
    assert len(set(cut.values)) == len(cut.values)
    assert sorted(asked) == sorted(set(strings))


def test_where_on_no_values() -> None:
    empty = Coded.of([])
    assert empty.where(lambda name: True).tolist() == []
    assert empty.map(str.upper) == empty
    assert empty.take(np.zeros(0, np.bool_)) == empty


@quick
@given(STRINGS)
def test_through_arrow(strings: list[str]) -> None:
    column = Coded.of(strings)
    arrow = column.to_arrow()
    assert arrow.to_pylist() == strings
    assert Coded.from_arrow(pa.chunked_array([arrow])) == column


@quick
@given(STRINGS, STRINGS)
def test_from_arrow_in_chunks_and_plain_strings(one: list[str], other: list[str]) -> None:
    both = Coded.of(one + other)
    plain = pa.chunked_array([pa.array(one, pa.string()), pa.array(other, pa.string())])
    assert Coded.from_arrow(plain) == both
    coded = pa.chunked_array([Coded.of(one).to_arrow(), shuffled(Coded.of(other)).to_arrow()])
    assert Coded.from_arrow(coded) == both


def test_from_arrow_without_a_chunk() -> None:
    assert Coded.from_arrow(pa.chunked_array([], pa.string())) == Coded.of([])
    kind = pa.dictionary(pa.int32(), pa.string())
    assert Coded.from_arrow(pa.chunked_array([], kind)) == Coded.of([])
