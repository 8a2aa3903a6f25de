"""Limits as people write them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bubblescope.check import Budget, units
from bubblescope.errors import BubblescopeError


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("300us", 300_000),
        ("1.2ms", 1_200_000),
        ("9 ms", 9_000_000),
        ("2s", 2 * 10**9),
        ("7ns", 7),
        ("0.001us", 1),
    ],
)
def test_times(text, ns):
    assert units.time_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "",
        "-1us",
        "1e3us",
        "1.us",
        ".5us",
        "5µs",
        "us",
        "1us ",
        "1us\n",
        "٣us",
        "nan",
        "0.5ns",
        "1 m",
    ],
)
def test_what_is_no_time(text):
    with pytest.raises(BubblescopeError, match=r"not a time; write it|not a whole number"):
        units.time_ns(text)


@pytest.mark.parametrize(
    ("text", "share"),
    [("0", 0), ("5%", Fraction(1, 20)), ("0.5 %", Fraction(1, 200)), ("250%", Fraction(5, 2))],
)
def test_shares(text, share):
    assert units.share(text) == share


@pytest.mark.parametrize("text", ["5", "-5%", "%", "5%\n", "5%%", "0.05"])
def test_what_is_no_share(text):
    with pytest.raises(BubblescopeError, match="is not a share; write it as in 5%"):
        units.share(text)


@pytest.mark.parametrize(
    ("number", "count"), [(0, 0), ("3", 3), ("0.5", Fraction(1, 2)), (1.5, Fraction(3, 2))]
)
def test_counts(number, count):
    assert units.count(number) == count


@pytest.mark.parametrize("number", [-1, "x", "", float("nan"), float("inf"), True, "1_0"])
def test_what_is_no_count(number):
    with pytest.raises(BubblescopeError, match="is not a number of 0 or more"):
        units.count(number)


def test_idle_is_a_share_or_a_time():
    assert Budget.parse(max_idle="5%") == Budget(max_idle_share=Fraction(1, 20))
    assert Budget.parse(max_idle="300us") == Budget(max_idle_ns=300_000)
    assert Budget.parse(max_idle=0) == Budget(max_idle_ns=0)
    with pytest.raises(BubblescopeError, match="'5' is not a time"):
        Budget.parse(max_idle="5")


def test_nothing_limited_is_empty():
    assert Budget.parse().empty
    assert not Budget.parse(max_reads=0).empty
