"""Broken files: what is whole is read, exactly the events before a cut, never a traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from bubblescope.ingest.mend import mend
from bubblescope.timeline import Timeline
from tests.test_ingest_kineto import health, kernel, launch, save, span

_TRIES = settings(
    max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# Ten launches and their kernels, each of a name of its own, two annotations, a label.
EVENTS: list[Any] = [
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python3"}},
    span("user_annotation", "first", 0, 50, **{"Input Dims": [[1, 2], [3]]}),
    *(
        event
        for i in range(10)
        for event in (
            launch(10 * i + 1, 1.5, i),
            kernel(10 * i + 3.001, 2.25, f"kernel {i}", correlation=i),
        )
    ),
    span("user_annotation", "last", 60, 50),
]
HEAD = {"schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 8}}
FOOT = {"traceName": "t.json", "baseTimeNanoseconds": 1_700_000_000_000_000_000}
STYLES: list[dict[str, Any]] = [{}, {"indent": 1}, {"separators": (",", ":")}]


def texts(style: dict[str, Any]) -> list[str]:
    return [json.dumps(e, **style) for e in EVENTS]


def document(parts: list[str], *, bare: bool = False, between: str = ",\n") -> str:
    events = f"[{between.join(parts)}]"
    return events if bare else f'{json.dumps(HEAD)[:-1]}, "traceEvents": {events}}}'


def rows(timeline: Timeline) -> list[tuple[Any, ...]]:
    """Every row that a span of the file becomes, without the file's base, in order."""
    base = timeline.meta.base_ns
    found: list[tuple[Any, ...]] = []
    for table in (timeline.device_ops, timeline.host_calls, timeline.ranges):
        found += zip(
            (table.start - base).tolist(),
            (table.end - base).tolist(),
            table.name.to_list(),
            strict=True,
        )
    return sorted(found)


def expected(events: list[Any]) -> list[tuple[Any, ...]]:
    spans = [e for e in events if e["ph"] == "X"]
    return sorted(
        (round(1000 * e["ts"]), round(1000 * e["ts"]) + round(1000 * e["dur"]), e["name"])
        for e in spans
    )


def attempt(path: Path, content: bytes) -> Timeline | str:
    path.write_bytes(content)
    try:
        return load(path)
    except BubblescopeError as error:
        refusal = str(error)
    assert "\n" not in refusal
    assert "; " in refusal
    return refusal


# Cuts ------------------------------------------------------------------------------------------


@_TRIES
@given(st.data())
def test_a_cut_leaves_exactly_the_events_before_it(tmp_path: Path, data: st.DataObject) -> None:
    parts = texts(data.draw(st.sampled_from(STYLES)))
    text = document(parts, bare=data.draw(st.booleans()))
    cut = data.draw(st.integers(1, len(text) - 1))
    ends, at = [], 0
    for part in parts:
        at = text.index(part, at) + len(part)
        ends.append(at)
    whole = sum(end <= cut for end in ends)
    got = attempt(tmp_path / "t", text[:cut].encode())
    if isinstance(got, str):
        assert not any(e.get("cat") == "kernel" for e in EVENTS[:whole])
        assert "cut short" in got or not text[:cut].strip(" [{")
    else:
        assert rows(got) == expected(EVENTS[:whole])
        (kind,) = got.health.kind.to_list()
        assert kind in ("cut short", "no closing bracket")
        assert (kind == "cut short") == bool(text[ends[whole - 1] : cut].strip(" ,\n]"))


@pytest.mark.parametrize("pack", [gzip.compress, lambda b: pa.compress(b, "zstd", asbytes=True)])
def test_a_cut_of_packed_data(tmp_path: Path, pack: Any) -> None:
    # Long enough for several blocks, with names that do not pack well.
    many = [kernel(i, 0.5, f"k{pow(7, i, 10**30 + 57)}", correlation=i) for i in range(9000)]
    packed = pack(document([json.dumps(e) for e in many]).encode())
    path = tmp_path / "t.json"
    for share in (0.3, 0.6, 0.99):
        path.write_bytes(packed[: int(share * len(packed))])
        got = load(path)
        whole = len(got.device_ops)
        assert share - 0.3 < whole / 9000 < share + 0.01
        assert got.device_ops.name.to_list() == [e["name"] for e in many[:whole]]
        assert "data ends early, at byte" in got.health.note[0]
        with pytest.raises(BubblescopeError, match=r"cut short: the (gzip|zstd) data ends early"):
            load(path, strict=True)


def test_a_packed_file_that_is_whole(tmp_path: Path) -> None:
    text = document(texts({})).encode()
    plain = attempt(tmp_path / "t", text)
    packed = attempt(tmp_path / "t", pa.compress(text, "zstd", asbytes=True))
    assert isinstance(plain, Timeline)
    assert packed == plain
    two = [pa.compress(half, "zstd", asbytes=True) for half in (text[:99], text[99:])]
    assert attempt(tmp_path / "t", b"".join(two)) == plain
    assert "damaged zstd data" in str(attempt(tmp_path / "t", two[0] + b"no more"))


def test_what_a_cut_says(tmp_path: Path) -> None:
    parts = texts({})
    text = document(parts)
    cut = text.index(parts[8]) + 20  # the label, one annotation, three kernels and their launches
    path = tmp_path / "t"
    path.write_text(text[:cut])
    got = load(path)
    assert len(got.device_ops) == 3
    assert health(got) == {"cut short": 20}
    assert got.meta.world_size == 8
    assert set(got.device_ops.rank.tolist()) == {3}
    share = 100 * (1 - 20 / cut)
    for said in (f"at byte {cut:,}", f"{share:.2f} %", "last 20 bytes"):
        assert said in got.health.note[0]
    with pytest.raises(BubblescopeError, match=rf"cut short: the JSON ends .* at byte {cut:,}"):
        load(path, strict=True)


@pytest.mark.parametrize("tail", ["]", "],", "", ",", ",\n", '], "traceName": "x"', "]}\n\0\0"])
def test_missing_closing_brackets(tmp_path: Path, tail: str) -> None:
    text = document(texts({}))[: -len("]}")] + tail
    got = attempt(tmp_path / "t", text.encode())
    assert isinstance(got, Timeline)
    assert rows(got) == expected(EVENTS)
    assert set(health(got)) <= {"no closing bracket"}
    assert bool(len(got.health)) == ("}" not in tail)


def test_fields_behind_the_events_count_in_a_broken_file(tmp_path: Path) -> None:
    foot = json.dumps(FOOT)[1:]
    text = document([*texts({}), '{"ph":"X","name":"\\q"}'])[:-1] + f", {foot}"
    got = attempt(tmp_path / "t", text.encode())
    assert isinstance(got, Timeline)
    assert got.meta.base_ns == FOOT["baseTimeNanoseconds"]
    assert got.meta.about["traceName"] == "t.json"
    assert got.meta.world_size == 8
    cut = attempt(tmp_path / "t", text[:-20].encode())  # in the middle of the base
    assert isinstance(cut, Timeline)
    assert cut.meta.base_ns == 0
    assert cut.meta.about["traceName"] == "t.json"


# Damage between the events ---------------------------------------------------------------------


@_TRIES
@given(st.data())
def test_control_characters_cost_no_event(tmp_path: Path, data: st.DataObject) -> None:
    parts = texts(data.draw(st.sampled_from(STYLES)))
    hurt = data.draw(st.sets(st.integers(2, len(parts) - 1), min_size=1))
    for n in hurt:
        at = parts[n].index(EVENTS[n]["name"])
        bad = chr(data.draw(st.integers(0, 31)))
        parts[n] = parts[n][:at] + bad + parts[n][at:]
    got = attempt(tmp_path / "t", document(parts).encode())
    assert isinstance(got, Timeline)
    assert [r[:2] for r in rows(got)] == [r[:2] for r in expected(EVENTS)]
    assert health(got) == {"mended event": len(hurt)}


@_TRIES
@given(st.data())
def test_a_lost_bracket_costs_one_event_at_most(tmp_path: Path, data: st.DataObject) -> None:
    parts = texts(data.draw(st.sampled_from(STYLES)))
    n = data.draw(st.integers(1, len(parts) - 1))
    at = data.draw(st.sampled_from([i for i, c in enumerate(parts[n]) if c in "{}[]"]))
    others = expected(EVENTS[:n] + EVENTS[n + 1 :])
    parts[n] = parts[n][:at] + parts[n][at + 1 :]
    got = attempt(
        tmp_path / "t", document(parts, between=data.draw(st.sampled_from([",", ",\n"]))).encode()
    )
    assert isinstance(got, Timeline)
    assert set(others) <= set(rows(got)) <= set(expected(EVENTS))
    assert len(got.health)


@_TRIES
@given(st.data())
def test_a_lost_quote_or_comma_costs_one_event_at_most(tmp_path: Path, data: st.DataObject) -> None:
    parts = texts(data.draw(st.sampled_from(STYLES)))
    n = data.draw(st.integers(1, len(parts) - 1))
    at = data.draw(st.sampled_from([i for i, c in enumerate(parts[n]) if c in '",:']))
    others = expected(EVENTS[:n] + EVENTS[n + 1 :])
    parts[n] = parts[n][:at] + parts[n][at + 1 :]
    got = attempt(tmp_path / "t", document(parts).encode())
    assert isinstance(got, Timeline)
    assert set(others) <= set(rows(got))
    try:
        json.loads(parts[n])  # [1, 2] without its comma is a list still
    except ValueError:
        assert len(got.health)


@_TRIES
@given(st.data())
def test_no_damage_costs_the_events_around_it(tmp_path: Path, data: st.DataObject) -> None:
    parts = texts(data.draw(st.sampled_from(STYLES)))
    n = data.draw(st.integers(3, len(parts) - 2))
    junk = data.draw(st.binary(min_size=1, max_size=30).filter(lambda b: b"{" not in b))
    at = data.draw(st.integers(1, len(parts[n]) - 1))
    text = document(parts).encode()
    place = text.index(parts[n].encode()) + at
    got = attempt(tmp_path / "t", text[:place] + junk + text[place:])
    assert isinstance(got, Timeline)
    near = {n} | {n - 1, n + 1}
    rest = [e for i, e in enumerate(EVENTS) if i not in near]
    assert set(expected(rest)) <= set(rows(got))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        (r"C:\torch\nn.py(3): forward", r"C:\torch\nn.py(3): forward"),  # no escape of JSON's
        (r"C:\Users\x", r"C:\Users\x"),
        ("C:\\dir\\", "C:\\dir\\"),
        ('kernel "fast" <1>', 'kernel "fast" <1>'),
        ('"quoted"', '"quoted"'),
        ("a\x01b\x1fc", "a\x01b\x1fc"),
        ("line\nbreak\ttab", "line\nbreak\ttab"),
        (r"\ud83d half", "\N{REPLACEMENT CHARACTER} half"),
        (r"\q \u12 é", r"\q \u12 é"),
    ],
)
@pytest.mark.parametrize("style", STYLES)
def test_names_that_were_not_escaped(tmp_path: Path, name: str, read: str, style: Any) -> None:
    if name == r"C:\torch\nn.py(3): forward":
        name, read = name.replace("forward", r"\forward"), read.replace("forward", r"\forward")
        name, read = name + r"\U", read + r"\U"
    parts = [p.replace("kernel 4", name) for p in texts(style)]
    got = attempt(tmp_path / "t", document(parts).encode())
    assert isinstance(got, Timeline)
    assert got.device_ops.name[4] == read
    assert sum(health(got).values()) == 1
    assert rows(got) == sorted(
        (*r[:2], read) if r[2] == "kernel 4" else r for r in expected(EVENTS)
    )


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    text = document(texts({})).encode().replace(b"kernel 4", b"kernel \xff\x00")
    got = attempt(tmp_path / "t", text)
    assert isinstance(got, Timeline)
    assert got.device_ops.name[4] == "kernel ?\0"
    assert len(got.device_ops) == 10


def test_where_the_first_damage_lies(tmp_path: Path) -> None:
    parts = texts({})
    text = document(parts).replace("kernel 4", "kernel \x04").replace("kernel 7", "kernel \x07")
    got = attempt(tmp_path / "t", text.encode())
    assert isinstance(got, Timeline)
    assert health(got) == {"mended event": 2}
    first = text.index('{"ph": "X", "cat": "kernel", "name": "kernel \x04')
    assert f"the first at byte {first:,}" in got.health.note[0]


# Numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "inf", "-inf", "nan", "-nan"])
def test_numbers_that_are_none(tmp_path: Path, word: str) -> None:
    plain = [*EVENTS[:-1], kernel(200, 1, "of NaN, inf]", occupancy="@", x=["@", 1])]
    text = json.dumps({**HEAD, "traceEvents": plain}).replace('"@"', word)
    got = attempt(tmp_path / "t", text.encode())
    assert isinstance(got, Timeline)
    assert rows(got) == expected(plain)
    assert got.device_ops.name[-1] == "of NaN, inf]"
    assert health(got) == {"NaN or Infinity": 2}
    (tmp_path / "t").write_text(text)
    assert load(tmp_path / "t", strict=True) == got  # nothing is lost


def test_a_time_that_is_no_number(tmp_path: Path) -> None:
    text = document(texts({})).replace("13.001", "NaN")
    got = attempt(tmp_path / "t", text.encode())
    assert isinstance(got, Timeline)
    assert len(got.device_ops) == 9
    assert health(got) == {"NaN or Infinity": 1, "unreadable time": 1}


def test_decimal_commas(tmp_path: Path) -> None:
    """As a writer with the wrong locale writes numbers."""
    text = document(texts({}))
    for number in ("13.001", "2.25", "1.5"):
        text = text.replace(number, number.replace(".", ","))
    got = attempt(tmp_path / "t", text.encode())
    assert isinstance(got, Timeline)
    assert rows(got) == expected(EVENTS)
    assert health(got) == {"mended event": 20}


def test_times_as_other_tools_write_them(tmp_path: Path) -> None:
    # As text, of the size of an epoch in us: floats of 64 bits would lose the ns.
    base = 1_704_161_511_420_306
    path = save(
        tmp_path / "t",
        [
            kernel(f"{base}.491", "13.08", "a"),
            kernel(base + 20, 4, "b"),
            kernel(f"{base + 30}.0010", "1e1", "c", correlation=2**64 + 1, bytes=2**63),
        ],
    )
    ops = load(path).device_ops
    assert (ops.start - 1000 * base).tolist() == [491, 20_000, 30_001]
    assert (ops.end - ops.start).tolist() == [13_080, 4_000, 10_000]
    assert ops.correlation.tolist() == [-1, -1, -1]


# One object ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8)
            | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
            max_leaves=8,
        ),
        max_size=4,
    )
)  # fmt: skip
def test_good_objects_stay_as_they_are(value: dict[str, Any]) -> None:
    for style in STYLES:
        text = json.dumps(value, **style).encode()
        made = mend(text + b" , {}")
        assert made is not None
        assert json.loads(made.text) == value
        assert (made.end, made.whole) == (len(text), True)


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_whatever_comes_out_is_json(damaged: bytes) -> None:
    made = mend(b"{" + damaged)
    assert made is not None
    json.loads(made.text)
    assert 0 < made.end <= len(damaged) + 1
