"""Trace files that are not valid JSON: every event that is whole, and what was done to get it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from bubblescope.ingest.kineto_meta import Document
from bubblescope.ingest.mend import mend

_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
# How an event begins. Objects inside of arguments follow a colon, and few have these names.
_EVENT = re.compile(rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:')
_PHASE = re.compile(rb'\{[^{}]{0,4096}?"ph"\s*:\s*"[A-Za-z]"')
_POSITION = re.compile(r"\(byte ([0-9]+)\)")
_FOLLOWS = re.compile(rb"[,\s]*([{}\]])")
_STRETCH = 1 << 20  # no single event is as long as this
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_fields = msgspec.json.Decoder(Document).decode

Notes = list[tuple[str, int, str]]
"""Health rows: kind, count, note."""

CUT = ("cut short", "no closing bracket")
"""The kinds of health rows that say that the file ends before its time."""


@dataclass(slots=True)
class Repairs:
    """What was done to a file.

    mended: events that are there but for something that could be put right; lost: stretches with
    nothing readable in them; first_at: byte offset of the first of these. tail: bytes after the
    last whole event that hold only a part of one. unclosed: the closing brackets are missing.
    """

    size: int
    mended: int = 0
    lost: int = 0
    first_at: int = -1
    tail: int = 0
    unclosed: bool = False

    def _at(self, offset: int) -> None:
        if self.first_at < 0:
            self.first_at = offset

    def count(self, offset: int, mended: int, lost: int) -> None:
        """Add what was found at an offset."""
        if mended or lost:
            self._at(offset)
        self.mended += mended
        self.lost += lost

    def move(self, by: int) -> None:
        """Of a part of the file: count from the file's beginning."""
        self.size += by
        self.first_at += by if self.first_at >= 0 else 0

    def notes(self, cut: str) -> Notes:
        """Health rows. `cut`: how the packed data ends early, "" if it does not.

        The share is of what is there: how much is missing, the file does not say.
        """
        rows: Notes = []
        if cut or self.tail:
            where = cut or f"the file ends in the middle of an event, at byte {self.size:,}"
            share = 100 * (1 - self.tail / max(1, self.size))
            rows.append(
                (
                    "cut short",
                    self.tail,
                    f"{where}; what is whole was read, {share:.2f} % of what is there (the last "
                    f"{self.tail:,} bytes hold no whole event), and how much is missing is not "
                    "known",
                )
            )
        elif self.unclosed:
            rows.append(
                (
                    "no closing bracket",
                    1,
                    "the last brackets are missing; every event there is was read, and whether "
                    "more were to follow is not known",
                )
            )
        where = f"the first at byte {self.first_at:,}"
        if self.mended:
            rows.append(
                (
                    "mended event",
                    self.mended,
                    f"not valid JSON (a character that was not escaped, a bracket or comma), put "
                    f"right and read; {where}",
                )
            )
        if self.lost:
            rows.append(("lost event", self.lost, f"dropped: nothing readable there; {where}"))
        return rows


def recover(content: bytearray) -> tuple[Document | None, Repairs]:
    """The file as far as it can be read; None where no list of events begins in it.

    `content` is changed where separators stood: the events are pieces of it, not copies.
    """
    repairs = Repairs(len(content))
    begin = len(content) - len(content.lstrip())
    if content[begin : begin + 1] == b"[":
        walk = _Walk(content, repairs)
        walk.read(begin)
        return Document(walk.pieces), repairs
    found = _LIST.search(content)
    if not found:
        return None, repairs
    head, _ = _fields(bytes(content[begin : found.end()]) + b"]}")
    walk = _Walk(content, repairs)
    end = walk.read(found.end() - 1)
    foot, whole = _fields(b'{"traceEvents":[],' + content[end:])
    repairs.unclosed |= not whole
    document = _merged(head, foot)
    document.trace_events = walk.pieces
    return document, repairs


def _fields(text: bytes) -> tuple[Document, bool]:
    """The fields of an object that is not quite JSON, and whether it has its last bracket."""
    made = mend(text)
    if made is None:
        return Document([]), False
    with suppress(msgspec.MsgspecError):
        return _decode_fields(made.text), made.whole
    return Document([]), made.whole


def _merged(first: Document, second: Document) -> Document:
    """The fields of both; those of the first where both have one."""
    blank = Document([])
    for name in Document.__struct_fields__:
        if getattr(first, name) == getattr(blank, name):
            setattr(first, name, getattr(second, name))
    return first


@dataclass(slots=True)
class _Walk:
    """Through the list of events: runs of good ones at once, what is between one by one."""

    content: bytearray
    repairs: Repairs
    pieces: list[msgspec.Raw] = field(default_factory=list)

    def read(self, start: int) -> int:
        """Take the events after the bracket at `start`; where their list ends."""
        while True:
            fault, ended = self._run(start)
            if ended:
                more = _PHASE.search(self.content, fault)
                if not more:
                    return fault
                self.repairs.count(fault, 0, 1)  # a bracket too many
                start = more.start() - 1
                continue
            bad = self._good(start, fault)
            following = _EVENT.search(self.content, max(bad + 1, fault))
            if following is None:
                return self._last(bad)
            self._between(bad, following.start())
            start = following.start() - 1

    def _run(self, start: int) -> tuple[int, bool]:
        """Take all that follows if it is good to the list's end: where that is, else the fault."""
        self.content[start] = ord("[")
        view = memoryview(self.content)[start:]
        try:
            self.pieces += _decode_list(view)
            return len(self.content), True
        except msgspec.DecodeError as error:
            place = _POSITION.search(str(error))
            if not place:  # truncated
                return len(self.content), False
            fault = min(start + int(place[1]), len(self.content))
            if "trailing characters" not in str(error):
                return fault, False
        while True:
            fault = self.content.rfind(b"]", start, fault)
            with suppress(msgspec.DecodeError):
                self.pieces += _decode_list(view[: fault + 1 - start])
                return fault + 1, True

    def _good(self, start: int, fault: int) -> int:
        """Take the events before the one in which the fault lies; where that one begins."""
        bad = self._last_event(start, fault)
        while not self._take(start, bad):
            bad = self._last_event(start, bad)  # it was an object inside of an event
        return bad

    def _last_event(self, start: int, before: int) -> int:
        reach = 1 << 12
        while True:
            low = max(start + 1, before - reach)
            *_, found = (0, *(m.start() for m in _EVENT.finditer(self.content, low, before)))
            if found or low == start + 1:
                return found or low
            reach *= 8

    def _take(self, start: int, stop: int) -> bool:
        """Take the events between the bracket at `start` and `stop`, if they are whole."""
        comma = stop - 1
        while comma > start and self.content[comma] in b" \t\r\n":
            comma -= 1
        if comma <= start:
            return True
        kept, self.content[comma] = self.content[comma], ord("]")
        try:
            self.pieces += _decode_list(memoryview(self.content)[start : comma + 1])
        except msgspec.DecodeError:
            self.content[comma] = kept
            return False
        return True

    def _between(self, start: int, stop: int) -> None:
        """Take what can be read of a stretch in which something is wrong."""
        text = bytes(self.content[start : min(stop, start + _STRETCH)])
        found = 0
        while made := mend(text):
            # A bracket may be lost, but not what makes an event.
            if made.whole or (b'"ts":' in made.text and b'"name":' in made.text):
                self.pieces.append(msgspec.Raw(made.text))
                found += 1
            text = text[made.end :]
        self.repairs.count(start, found, not found)

    def _last(self, start: int) -> int:
        """Take the events after which no other begins; where their list ends."""
        while True:
            text = bytes(self.content[start : start + _STRETCH])
            made = mend(text)
            if made is None or not made.whole:
                rest = self.content[start:].strip(b", \t\r\n")
                self.repairs.tail, self.repairs.unclosed = len(rest), True
                return len(self.content)
            self.pieces.append(msgspec.Raw(made.text))
            self.repairs.count(start, made.text != text[: made.end].lstrip(), 0)
            start += made.end
            follows = _FOLLOWS.match(self.content, start)
            if follows is None or follows[1] != b"{":
                self.repairs.unclosed |= follows is None or follows[1] != b"]"
                return follows.end() if follows else len(self.content)
            start = follows.start(1)
