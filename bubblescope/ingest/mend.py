"""One JSON object that is not quite JSON, made whole: what trace writers get wrong in practice.

Unescaped backslashes, quotes and control characters in strings, bytes that are no UTF-8, NaN and
Infinity, quotes, commas and brackets too many or too few. Slow: only for what fails elsewhere.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

_scan = json.JSONDecoder().raw_decode
_CLOSING = {"{": "}", "[": "]"}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r":-?[0-9]+$")
_WORD = re.compile(r'[^\s,:{}\[\]"]+')
_LITERALS = {"true": "true", "false": "false", "True": "true", "False": "false"}
# What follows the quote that ends a key, a value of an object, an item of a list.
_AFTER_KEY = re.compile(r"\s*:")
_AFTER_VALUE = re.compile(r'([\s,]*"[^"\\,:{}]*"\s*:|[\s,\]]*\}\s*([,}\]]|$)|\s*$)')
_AFTER_ITEM = re.compile(r"\s*([,:\]]|$)")
# What follows a value that lost its last quote.
_NEXT_FIELD = re.compile(r'\s*,\s*"(ph|cat|name|pid|tid|ts|dur|args)"\s*:')
_LONE_SURROGATE = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_IN_STRING = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rf"|{_LONE_SURROGATE}"
    r'|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
    r'|\\|"|[\x00-\x1f]'
)

# NaN and Infinity where a value stands.
_NO_NUMBERS = (b"NaN", b"Infinity", b"nan", b"inf")
_BEFORE_NUMBER = re.compile(rb'(?<!\\)":\s*(?:\[(?:[^"{}]*[\[,])?\s*)?[+-]?\Z')
_AFTER_NUMBER = re.compile(rb"(?:inity)?(?=\s*[,}\]])")
_NEAR = 256


@dataclass(frozen=True, slots=True)
class Mended:
    """One object, mended.

    text: valid JSON, that of the object itself where nothing was wrong with it. end: where the
    object ended, in bytes of what was given. whole: its last bracket was there. Where it was not,
    a last value that may have lost its end is left out.
    """

    text: bytes
    end: int
    whole: bool


def blank_no_numbers(content: bytearray) -> int:
    """Make every NaN and Infinity that stands as a value an empty string of the same length."""
    found = 0
    for word in _NO_NUMBERS:
        at = -1
        while (at := content.find(word, at + 1)) >= 0:
            after = _AFTER_NUMBER.match(content, at + len(word))
            near = max(0, at - _NEAR)
            if after and (before := _BEFORE_NUMBER.search(content[near:at])):
                sign = before[0][-1:] in b"+-"
                text = content[at - sign : after.end()]
                content[at - sign : after.end()] = b'""'.ljust(len(text))
                found += 1
    return found


def mend(damaged: bytes) -> Mended | None:
    """The first object in `damaged`; None where there is none."""
    if good := _good(damaged):
        return good
    text = damaged.decode("utf-8", "surrogateescape")
    begin = text.find("{")
    if begin < 0:
        return None
    reader = _Reader(text, begin)
    made = reader.read()
    end = len(text[: reader.at].encode("utf-8", "surrogateescape"))
    return Mended(made.encode("utf-8", "replace"), end, reader.whole)


def _good(text: bytes) -> Mended | None:
    """The first object, if it is valid JSON as it stands."""
    with suppress(ValueError, RecursionError):
        plain = text.decode("ascii")
        begin = plain.index("{")
        _, end = _scan(plain, begin)
        msgspec.json.decode(text[begin:end])  # stricter: NaN, lone surrogates
        return Mended(text[begin:end], end, True)
    return None


@dataclass(slots=True)
class _Bracket:
    """An object or a list that is being read: what is done of it, and the key that waits."""

    closing: str
    items: list[str] = field(default_factory=list)
    key: str = ""

    @property
    def wants_key(self) -> bool:
        return self.closing == "}" and not self.key

    def put(self, value: str) -> None:
        """Add a value; in an object one without a key is lost."""
        if self.closing == "]":
            self.items.append(value)
        elif self.key:
            self.items.append(f"{self.key}:{value}")
            self.key = ""

    def add_decimals(self, word: str, before: str) -> None:
        """Digits where a name is due: those of a number written with a decimal comma."""
        if before == "," and word.isdecimal() and self.items and _INTEGER.search(self.items[-1]):
            self.items[-1] += f".{word}"

    def text(self) -> str:
        opening = "{" if self.closing == "}" else "["
        return f"{opening}{','.join(self.items)}{self.closing}"


@dataclass(slots=True)
class _Reader:
    """Reads one object from `at` on; separators count for nothing, brackets for what they close."""

    text: str
    at: int
    open: list[_Bracket] = field(default_factory=list)
    done: str = ""

    @property
    def whole(self) -> bool:
        return bool(self.done)

    def read(self) -> str:
        while self.at < len(self.text) and not self.done:
            character = self.text[self.at]
            if character in "{[":
                # Where a name is due, no object begins: a bracket too many.
                if not (character == "{" and self.open and self.open[-1].wants_key):
                    self.open.append(_Bracket(_CLOSING[character]))
                self.at += 1
            elif character in "}]":
                self.at += 1
                self._close(character)
            elif character == '"':
                self._string(self.at + 1)
            elif character in ",:" or character.isspace() or character < " ":
                self.at += 1
            else:
                self._bare()
        return self.done or self._unfinished()

    def _close(self, closing: str) -> None:
        """Close the innermost bracket of that kind, and those inside it that were left open."""
        while any(b.closing == closing for b in self.open):
            closed = self.open.pop()
            if self.open:
                self.open[-1].put(closed.text())
            else:
                self.done = closed.text()
            if closed.closing == closing:
                return

    def _close_lists(self) -> None:
        """A name and its colon in a list: the list has lost its bracket."""
        while self.open[-1].closing == "]":
            text = self.open.pop().text()
            self.open[-1].put(text)

    def _unfinished(self) -> str:
        """What there is of an object that the text's end cut."""
        while len(self.open) > 1:
            inner = self.open.pop()
            self.open[-1].put(inner.text())
        return self.open[0].text()

    def _bare(self) -> None:
        """A number or a word without quotes."""
        word = _WORD.match(self.text, self.at)
        assert word is not None  # every character that is no word's has its own branch
        self.at = word.end()
        bracket = self.open[-1]
        if self.text[self.at : self.at + 1] == '"':  # its first quote is lost
            self._string(word.start())
        elif self.at == len(self.text):
            pass  # it may have lost its end
        elif bracket.wants_key:
            bracket.add_decimals(word[0], self.text[word.start() - 1])
        else:
            number = _NUMBER.fullmatch(word[0])
            bracket.put(word[0] if number else _LITERALS.get(word[0], "null"))

    def _string(self, begin: int) -> None:
        bracket = self.open[-1]
        if bracket.closing == "]":
            end = self._end(begin, _AFTER_ITEM)
        else:
            end = self._end(begin, _AFTER_KEY if bracket.wants_key else _AFTER_VALUE)
        self.at = end + (self.text[end : end + 1] == '"')
        if end == len(self.text):
            return  # cut
        if bracket.closing == "]" and _AFTER_KEY.match(self.text, self.at):
            self._close_lists()
            bracket = self.open[-1]
        if bracket.wants_key:
            if _AFTER_KEY.match(self.text, self.at):
                bracket.key = _quoted(self.text[begin:end])
        else:
            bracket.put(_quoted(self.text[begin:end]))

    def _end(self, begin: int, after: re.Pattern[str]) -> int:
        """Where the string ends: at the first quote that what follows it makes the last one."""
        escaped = len(self.text)
        at = begin - 1
        while (at := self.text.find('"', at + 1)) >= 0:
            follows = after.match(self.text, at + 1)
            if not follows:
                continue
            slashes = at - begin - len(self.text[begin:at].rstrip("\\"))
            # A path may end in a backslash; in JSON inside of a string, no bare quote follows.
            if slashes % 2 == 0 or (after is _AFTER_VALUE and '"' in follows[1]):
                break
            escaped = min(escaped, at)
        end = at if at >= 0 else escaped
        if after is _AFTER_VALUE and (lost := _NEXT_FIELD.search(self.text, begin, end)):
            return lost.start()
        return end


def _quoted(content: str) -> str:
    """The string as JSON wants it."""
    escapes = {m[0] for m in _IN_STRING.finditer(content)}
    # Where one backslash escapes nothing, as in a path, none of the string was meant to.
    literal = "\\" in escapes

    def fixed(found: re.Match[str]) -> str:
        text = found[0]
        if text == '"':
            return '\\"'
        if text < " ":
            return f"\\u{ord(text):04x}"
        if literal and text != '\\"':
            return text.replace("\\", "\\\\")
        if re.fullmatch(_LONE_SURROGATE, text):
            return "\\ufffd"
        return text

    return f'"{_IN_STRING.sub(fixed, content)}"'
