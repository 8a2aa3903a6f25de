"""Limits as people write them: "5%", "300us", "1.2ms", "0". A unit is never guessed."""

from __future__ import annotations

import re
from fractions import Fraction

from bubblescope.errors import BubblescopeError

_NUMBER = r"(\d+(?:\.\d+)?)"
_SHARE = re.compile(rf"{_NUMBER} ?%", re.ASCII)
_TIME = re.compile(rf"{_NUMBER} ?(ns|us|ms|s)", re.ASCII)
_COUNT = re.compile(_NUMBER, re.ASCII)
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def is_share(text: str) -> bool:
    """Whether it is written as a share: "5%"."""
    return text.endswith("%")


def share(text: str) -> Fraction:
    """A share of 1 from per cent: "5%" or "0"."""
    if text == "0":
        return Fraction(0)
    match = _SHARE.fullmatch(text)
    if match is None:
        raise BubblescopeError(f"{text!r} is not a share; write it as in 5%")
    return Fraction(match[1]) / 100


def time_ns(text: str) -> int:
    """Whole nanoseconds from "300us", "1.2ms" or "0"."""
    if text == "0":
        return 0
    match = _TIME.fullmatch(text)
    if match is None:
        raise BubblescopeError(f"{text!r} is not a time; write it with its unit, as in 300us")
    ns = Fraction(match[1]) * _NS[match[2]]
    if ns.denominator != 1:
        raise BubblescopeError(f"{text!r} is not a whole number of nanoseconds")
    return int(ns)


def count(number: str | float) -> Fraction:
    """A number of things, not negative: 1, "1" or "0.5"."""
    match = _COUNT.fullmatch(str(number))
    if match is None:
        raise BubblescopeError(f"{str(number)!r} is not a number of 0 or more; write it as in 1")
    return Fraction(match[1])
