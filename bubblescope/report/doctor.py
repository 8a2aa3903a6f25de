"""What `bubblescope doctor` prints: the conclusion, then a line for each thing looked at."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from bubblescope.doctor.model import Capture, Check, Examination, State
from bubblescope.report.page import Page
from bubblescope.report.words import clean, middle

VERSION = 1
_GAP = 2
_ARROW = ("→ ", "-> ")
_LEAST = 24  # cells for what was found, on however narrow a page
_STYLES = {State.OK: "green", State.MISSING: "yellow", State.OLD: "yellow", State.CANNOT: "red"}


class CheckJson(msgspec.Struct, frozen=True):
    """One thing looked at."""

    name: str
    group: str
    title: str
    state: str
    found: str
    do: str
    optional: bool
    version: str
    path: str


class CaptureJson(msgspec.Struct, frozen=True):
    """One way of recording."""

    name: str
    title: str
    can: bool
    why: str


class DoctorJson(msgspec.Struct, frozen=True):
    """All of it: docs/doctor.md says what each key means."""

    version: int
    conclusion: str
    captures: list[CaptureJson]
    checks: list[CheckJson]


def to_json(examination: Examination) -> bytes:
    """The examination as UTF-8 JSON, indented, with a newline at its end."""
    told = DoctorJson(
        VERSION,
        conclusion(examination.captures),
        [CaptureJson(c.name, c.title, c.can, clean(c.why)) for c in examination.captures],
        [
            CheckJson(
                c.name,
                c.group,
                c.title,
                c.state.value,
                clean(c.found),
                clean(c.do),
                c.optional,
                clean(c.version),
                _encodable(c.path),
            )
            for c in examination.checks
        ],
    )
    return msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"


def conclusion(captures: Sequence[Capture]) -> str:
    """What can be recorded and what not: "can record: ...; cannot: ... (why)"."""
    can = ", ".join(c.title for c in captures if c.can)
    said = f"can record: {can or 'nothing here, only diagnose recordings from elsewhere'}"
    reasons: dict[str, list[str]] = {}
    for capture in captures:
        if not capture.can:
            reasons.setdefault(clean(capture.why), []).append(capture.title)
    cannot = ", ".join(f"{' and '.join(titles)} ({why})" for why, titles in reasons.items())
    return f"{said}; cannot: {cannot}" if cannot else said


def render(examination: Examination, console: Console) -> None:
    """Print it: lines of a kind together, advice beside or under its line."""
    page = Page(console)
    page.prose(conclusion(examination.captures), style="bold")
    checks = examination.checks
    titles = max(cell_len(c.title) for c in checks) + _GAP
    states = max(cell_len(c.state) for c in checks) + _GAP
    for _, group in groupby(checks, key=lambda check: check.group):
        page.put()
        for check in group:
            _line(check, page, titles, states)


def _line(check: Check, page: Page, titles: int, states: int) -> None:
    """One check: what was found, then what to do, on the same line where there is room."""
    left = titles + states
    room = max(_LEAST, page.width - left)
    # An optional thing that is missing is nothing to worry about.
    quiet = check.optional and check.state is not State.OK
    head = Text(check.title.ljust(titles))
    head.append(check.state.ljust(states), "dim" if quiet else _STYLES[check.state])
    # A path that is too long for a line is shortened; --json has all of it.
    words = (middle(word, room, page.ellipsis) for word in clean(check.found).split())
    lines = _lines(" ".join(words), room)
    do = (_ARROW[page.ellipsis == "..."] + clean(check.do)) if check.do else ""
    beside = bool(do) and cell_len(lines[-1]) + _GAP + cell_len(do) <= room
    for number, line in enumerate(lines):
        text = head if number == 0 else Text(" " * left)
        text.append(line, "dim" if quiet else "")
        if beside and number == len(lines) - 1:
            text.append(" " * _GAP).append(do, "cyan")
        page.put(text)
    if do and not beside:
        # A command that is broken cannot be copied: it may begin further left instead.
        indent = max(_GAP, min(left, page.width - cell_len(do)))
        for line in _lines(do, page.width - indent):
            page.put(Text(" " * indent).append(line, "cyan"))


def _lines(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _encodable(path: str) -> str:
    return path.encode("utf-8", "replace").decode("utf-8")
