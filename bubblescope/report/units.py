"""Figures in words: nanoseconds, shares and counts as people read them."""

from __future__ import annotations


def us(ns: int) -> str:
    """Microseconds for tables: "8,690", under ten "4.2"; "<0.1" is not nothing, "0" is."""
    if ns < 0:
        return "-" + us(-ns)
    if ns == 0:
        return "0"
    if ns < 50:
        return "<0.1"
    tenths = (ns + 50) // 100
    if tenths < 100:
        return f"{tenths // 10}.{tenths % 10}"
    return f"{(ns + 500) // 1000:,}"


def span(ns: int) -> str:
    """A duration in running text, in the unit that it is read in: "829 us", "83.6 ms", "13.3 s"."""
    if abs(ns) < 10_000_000:
        return f"{us(ns)} us"
    if abs(ns) < 10_000_000_000:
        return f"{ns / 1e6:,.1f} ms"
    return f"{ns / 1e9:,.1f} s"


def percent(part: int, whole: int) -> str:
    """Per cent with one decimal. Never "0.0" for something, nor "100.0" for less than all."""
    if whole <= 0:
        return "-"
    if part == 0:
        return "0"
    tenths = (2000 * part + whole) // (2 * whole)
    if tenths == 0:
        return "<0.1"
    if tenths == 1000 and part < whole:
        tenths = 999
    return f"{tenths // 10:,}.{tenths % 10}"


def count(number: int, noun: str, plural: str = "") -> str:
    """Number and noun: "1 step", "9 steps"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def rate(number: float) -> str:
    """Calls a step: "1.0", "0.1"; "<0.1" where it would read as none, "0" for none."""
    if number == 0:
        return "0"
    if 0 < number < 0.05:
        return "<0.1"
    return f"{number:,.1f}"
