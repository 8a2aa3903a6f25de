"""The text of a trace as lists of events of about a megabyte, read as it comes, only once.

Two lists of JSON values with a comma between them are one list of the same values. So if every
stretch decodes, the events are those of the file, wherever it was cut up; if one does not, either
the file is no valid JSON or a cut was inside of an event, and the file must be read whole. No more
than a few megabytes of the text are in memory, so a file may be larger than that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from bubblescope.ingest.kineto_meta import Document
from bubblescope.ingest.kineto_repair import Notes, recover
from bubblescope.ingest.mend import blank_no_numbers
from bubblescope.ingest.source import Source

# Small enough for the decoded objects to stay in the cache.
_STRETCH = 1 << 20
_EVENTS = 4096
_TRIES = 32
_NEAR = 1 << 16
# What stands before the events is not longer than this in any file that a profiler wrote.
_HEAD = 1 << 24
_BOM = b"\xef\xbb\xbf"
_LIST = re.compile(rb'"traceEvents"\s*:\s*(?=\[)')
# Where the text may be cut: before what looks like the beginning of an event.
_CUT = re.compile(rb'\}\s*(,)\s*\{\s*"(?:ph|name|cat|pid|ts)"\s*:')
# Where a list of events may end; the lines of Kineto's log that follow hold brackets too.
_END = re.compile(rb"[}\[]\s*\](?=\s*[,}])")
_decode_document = msgspec.json.Decoder(Document).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Stretches:
    """The lists of events of a file, one after the other.

    document: what stands beside the events; None until all was read, and where the file is neither
    what a profiler writes nor such a file cut short. notes: what was done to read its end.
    """

    def __init__(self, source: Source, progress: Callable[[float], None]) -> None:
        """Nothing is read yet. `progress` is told the share read."""
        self.document: Document | None = None
        self.notes: Notes = []
        self._pieces = source.pieces(progress)
        self._strict = source.strict
        self._lead = b""  # the text before the list
        self._from = 0  # where in the file the rest begins

    def __iter__(self) -> Iterator[bytes]:
        """Each stretch, valid JSON if the file is."""
        pieces = iter(self._pieces)
        rest = self._begin(pieces)
        if rest is None:
            return
        for piece in pieces:
            rest += piece
            at = 0
            while found := _CUT.search(rest, at + _STRETCH):
                with memoryview(rest) as view:
                    text = b"".join((b"[", view[at + 1 : found.start(1)], b"]"))
                yield text
                at = found.start(1)
            del rest[:at]
            self._from += at
        yield from self._end(rest)

    def _begin(self, pieces: Iterator[bytes]) -> bytearray | None:
        """Read up to where the events begin, and a little on; None where no events begin."""
        text = bytearray()
        for piece in pieces:
            text += piece
            if text.startswith(_BOM):
                text[:3] = b"   "  # white space, so that byte offsets stay those of the file
            start = len(text) - len(text.lstrip())
            if text[start : start + 1] == b"[":
                self._from = start
            elif found := _LIST.search(text):
                self._from = found.end()
            elif len(text) < _HEAD:
                continue
            else:
                return None
            self._lead = bytes(text[: self._from])
            del text[: self._from]
            return text
        return None

    def _end(self, rest: bytearray) -> Iterator[bytes]:
        """The last stretch, and the document; of a file that is cut, what is whole of it."""
        content = bytearray(self._lead)
        content += b"[" + rest[1:]
        found = _last_list(content, len(self._lead))
        if found is None and (numbers := blank_no_numbers(content)):
            self.notes.append(no_numbers(numbers))
            found = _last_list(content, len(self._lead))
        cut = self._pieces.cut
        if found is not None:
            if cut:
                self.notes.append(check_sum_gone(cut))
            last, self.document = found
            yield last
        elif not self._strict and not _is_json(content):
            document, repairs = recover(content)
            if document is None or not (document.trace_events or self._from > len(self._lead)):
                return
            repairs.move(self._from - len(self._lead))
            self.notes += repairs.notes(cut)
            yield from joined(document.trace_events, lambda share: None)
            self.document = document


def no_numbers(count: int) -> tuple[str, int, str]:
    """The health row on values that are NaN or Infinity."""
    return "NaN or Infinity", count, f"{count:,} values are no numbers: not used"


def check_sum_gone(cut: str) -> tuple[str, int, str]:
    """The health row on packed data that ends early, but behind the last bracket."""
    return "cut short", 1, f"{cut}; the JSON in it is whole, but its check sum is gone"


def _is_json(content: bytearray) -> bool:
    try:
        msgspec.json.decode(content, type=Document | list[msgspec.Raw])
    except msgspec.ValidationError:
        return True
    except msgspec.DecodeError:
        return False
    return True


def _last_list(content: bytearray, begin: int) -> tuple[bytes, Document] | None:
    """The list at `begin` and the fields around it; None where this is no valid JSON."""
    head = bytes(content[:begin])
    if not head.strip():
        end = len(content.rstrip()) - 1
        whole = end > begin and content[end : end + 1] == b"]"
        return (bytes(content[begin : end + 1]), Document([])) if whole else None
    for end in [found.end() - 1 for found in _END.finditer(content, begin)][: -_TRIES - 1 : -1]:
        with suppress(msgspec.MsgspecError):
            document = _decode_document(head + b"[" + bytes(content[end:]))
            if not document.trace_events and _is_last(content, begin, end):
                return bytes(content[begin : end + 1]), document
    return None


def _is_last(content: bytearray, begin: int, end: int) -> bool:
    """Whether the list seems to end at this bracket: what comes before it is of events."""
    last = begin
    for found in _CUT.finditer(content, max(begin, end - _NEAR), end):
        last = found.start(1)
    if end - last > _STRETCH:
        return True
    with suppress(msgspec.DecodeError):
        _decode_list(b"[" + bytes(content[last + 1 : end]) + b"]")
        return True
    return False


def joined(pieces: list[msgspec.Raw], progress: Callable[[float], None]) -> Iterator[bytes]:
    """Events given one by one, as stretches; empties the list."""
    total = len(pieces)
    for first in range(0, total, _EVENTS):
        yield b"[" + b",".join(pieces[first : first + _EVENTS]) + b"]"
        progress(min(1.0, (first + _EVENTS) / total))
    pieces.clear()
