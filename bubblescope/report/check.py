"""What `bubblescope check` and the pytest plugin print: a line a limit, and who exceeded it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec
from rich.console import Console
from rich.text import Text

from bubblescope.check.model import CheckLine, Culprit, Unit
from bubblescope.report.as_json import SiteJson
from bubblescope.report.page import Page
from bubblescope.report.units import count, percent, rate, span
from bubblescope.report.words import clean, encodable

VERSION = 1
_INDENT = 2
_MOST = 1_000_000  # a share in parts of this, for percent


class CulpritJson(msgspec.Struct, frozen=True):
    """Who exceeded a limit, and where."""

    what: str
    site: SiteJson | None
    source: str
    per_step: bool
    calls: float | None
    blocked_ns: int | None
    idle_ns: int | None


class LineJson(msgspec.Struct, frozen=True):
    """One limit."""

    name: str
    unit: str
    measured: float | int | None
    limit: float | int
    passed: bool
    note: str
    where: list[CulpritJson]


class CheckJson(msgspec.Struct, frozen=True):
    """All of it: docs/check.md says what each key means."""

    version: int
    source: str
    passed: bool
    lines: list[LineJson]


def to_json(source: str, lines: Sequence[CheckLine]) -> bytes:
    """The lines as UTF-8 JSON, indented, with a newline at its end."""
    told = CheckJson(
        VERSION,
        encodable(source),
        all(line.passed for line in lines),
        [
            LineJson(
                encodable(line.name),
                line.unit.value,
                None if line.measured is None else _number(line.measured),
                _number(line.limit),
                line.passed,
                encodable(line.note),
                [_culprit(c) for c in line.where],
            )
            for line in lines
        ],
    )
    return msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"


def render(source: str, lines: Sequence[CheckLine], console: Console) -> None:
    """Print the lines, those that failed with their culprits, and the sum of it."""
    page = Page(console)
    failed = sum(not line.passed for line in lines)
    if failed:
        verdict = f"{failed:,} of {count(len(lines), 'limit')} exceeded"
    else:
        verdict = f"within {'its limit' if len(lines) == 1 else f'all {len(lines):,} limits'}"
    page.prose(f"{clean(source)}: {verdict}", style="bold")
    told: dict[tuple[Culprit, ...], str] = {}
    for line in lines:
        mark, style = ("ok", "green") if line.passed else ("FAILED", "bold red")
        text = Text("  ").append(mark.ljust(8), style).append(_told(line))
        page.put(text, whole=True)
        for words in _details(line, told):
            page.put(words, 10, whole=True)


def as_text(lines: Sequence[CheckLine]) -> str:
    """The lines that failed, as plain text: for the message of a test."""
    said: list[str] = []
    told: dict[tuple[Culprit, ...], str] = {}
    for line in lines:
        if not line.passed:
            said += [_told(line), *(f"  {words}" for words in _details(line, told))]
    return "\n".join(said)


def _told(line: CheckLine) -> str:
    """As in "blocking reads a step: 2, at most 1"."""
    limit = f"at most {_figure(line.limit, line.unit)}"
    if line.measured is None:
        return f"{clean(line.name)}: {limit}; {clean(line.note)}"
    note = f"; {clean(line.note)}" if line.note else ""
    measured = _figure(line.measured, line.unit)
    if not line.passed and limit.endswith(measured):  # they differ in figures that are not shown
        measured, limit = (
            _exactly(line.measured, line.unit),
            f"at most {_exactly(line.limit, line.unit)}",
        )
    return f"{clean(line.name)}: {measured}, {limit}{note}"


def _details(line: CheckLine, told: dict[tuple[Culprit, ...], str]) -> list[str]:
    """The culprits; those of a line before are only pointed to. `told`: by which line they were."""
    if line.where in told:
        return [f"as under {told[line.where]}"]
    if line.where:
        told[line.where] = clean(line.name)
    said = []
    for culprit in line.where:
        said.append(_place(culprit))
        inner = " " * _INDENT
        if culprit.source:
            said.append(f"{inner}{clean(culprit.source)}")
        said.append(f"{inner}{_figures(culprit)}")
    return said


def _place(culprit: Culprit) -> str:
    """file:line in full, so that terminals and editors find it."""
    if culprit.site is None:
        return clean(culprit.what)
    line = f":{culprit.site.line}" if culprit.site.line > 0 else ""
    return f"{clean(culprit.site.file)}{line} in {clean(culprit.site.function)}"


def _figures(culprit: Culprit) -> str:
    each = " a step" if culprit.per_step else " in all"
    said = []
    if culprit.calls is not None:
        said.append(f"{rate(culprit.calls)} calls{each}")
    if culprit.blocked_ns is not None:
        said.append(f"blocked {span(culprit.blocked_ns)}{each}")
    if culprit.idle_ns is not None:
        said.append(f"idle {span(culprit.idle_ns)}{each}")
    figures = ", ".join(said)
    return figures if culprit.site is None else f"{clean(culprit.what)}: {figures}"


def _figure(number: Fraction, unit: Unit) -> str:
    if unit is Unit.NS:
        return span(round(number))
    if unit is Unit.SHARE:
        return f"{percent(round(number * _MOST), _MOST)} %"
    return f"{int(number):,}" if number.denominator == 1 else f"{float(number):,.2f}"


def _exactly(number: Fraction, unit: Unit) -> str:
    if unit is Unit.NS:
        return f"{float(number):,.0f} ns"
    return f"{float(100 * number):.6g} %" if unit is Unit.SHARE else f"{float(number):.6g}"


def _number(number: Fraction) -> float | int:
    return int(number) if number.denominator == 1 else round(float(number), 6)


def _culprit(culprit: Culprit) -> CulpritJson:
    site = culprit.site
    return CulpritJson(
        encodable(culprit.what),
        None
        if site is None
        else SiteJson(encodable(site.file), site.line, encodable(site.function)),
        encodable(culprit.source),
        culprit.per_step,
        None if culprit.calls is None else round(culprit.calls, 4),
        culprit.blocked_ns,
        culprit.idle_ns,
    )
