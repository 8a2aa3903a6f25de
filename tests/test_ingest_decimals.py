from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubblescope.ingest.decimals import to_ns

_EXACT = Context(prec=2000, rounding=ROUND_HALF_EVEN)


def expected(text: str) -> int | None:
    """The same by the decimal module alone; None where the number does not fit in int64."""
    ns = _EXACT.multiply(Decimal(text), Decimal(1000)).to_integral_value(ROUND_HALF_EVEN, _EXACT)
    return int(ns) if -(2**63) <= ns < 2**63 else None


def read(texts: list[str]) -> list[int | None]:
    ns, good = to_ns([t.encode() for t in texts])
    assert ns.dtype == np.int64
    assert not ns[~good].any()
    return [n if ok else None for n, ok in zip(ns.tolist(), good.tolist(), strict=True)]


def digits(least: int, most: int) -> st.SearchStrategy[str]:
    return st.text("0123456789", min_size=least, max_size=most)


@st.composite
def numbers(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(["", "-"])) + draw(digits(1, 25))
    if draw(st.booleans()):
        text += "." + draw(digits(1, 25))
    if draw(st.integers(0, 9)) == 0:
        text += draw(st.sampled_from("eE")) + draw(st.sampled_from(["", "+", "-"]))
        text += draw(digits(1, 3))
    return text


@given(st.lists(numbers(), max_size=40))
def test_any_number_is_what_decimal_says(texts: list[str]) -> None:
    assert read(texts) == [expected(t) for t in texts]


@given(st.lists(st.builds("{}.{}".format, st.integers(-(10**16), 10**16), digits(1, 3))))
def test_the_usual_three_decimals(texts: list[str]) -> None:
    assert read(texts) == [expected(t) for t in texts]


@given(st.lists(numbers(), min_size=1, max_size=10), st.data())
def test_quotes_and_things_that_are_no_number(texts: list[str], data: st.DataObject) -> None:
    junk = st.sampled_from(["null", "", '""', "true", "NaN", "[]", "[\n1]", '"1_0"', '"x"', "{}"])
    rows = data.draw(st.lists(junk | st.sampled_from(texts)))
    wanted = [expected(r) if r in texts else None for r in rows]
    quoted = [f'"{r}"' if r in texts and data.draw(st.booleans()) else r for r in rows]
    assert read(quoted) == wanted


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("5099922431683.653", 5_099_922_431_683_653),
        ("1712195495519689.1", 1_712_195_495_519_689_100),
        ("1704161511420306.491", 1_704_161_511_420_306_491),
        ('"1704161511420306.491"', 1_704_161_511_420_306_491),
        ("0.0005", 0),
        ("0.0015", 2),
        ("0.00150000000000000000000000001", 2),
        ("0.00050000000000000000000000001", 1),
        ("-0.0015", -2),
        ("12.77012757357446", 12_770),
        ("1.5e3", 1_500_000),
        ("1.7121954955196891E15", 1_712_195_495_519_689_100),
        ("9223372036854775.807", 2**63 - 1),
        ("-9223372036854775.808", -(2**63)),
        ("9223372036854775.808", None),
        # Beyond what 128 bits hold after scaling: Arrow alone would wrap around.
        ("1e30", None),
        ("1e36", None),
        ("9" * 38, None),
        ("1e999999999", None),
        ("1e-999999999", 0),
    ],
)
def test_one(text: str, ns: int | None) -> None:
    assert read([text]) == [ns]
    assert read(["1.25", text, "7"]) == [1_250, ns, 7_000]


def test_raw_json_values() -> None:
    class Event(msgspec.Struct):
        ts: msgspec.Raw = msgspec.Raw()

    events = msgspec.json.decode(b'[{"ts": 1.001}, {}, {"ts":"2.002"}]', type=list[Event])
    ns, good = to_ns([e.ts for e in events])
    assert ns.tolist() == [1_001, 0, 2_002]
    assert good.tolist() == [True, False, True]
