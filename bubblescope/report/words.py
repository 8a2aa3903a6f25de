"""Names that come from recordings, made fit to print: they are untrusted and often very long."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from rich.cells import cell_len

from bubblescope.diagnose.model import Site

Result = TypeVar("Result")

# Control, format (right-to-left marks, zero-width), surrogate, line and paragraph separators:
# what could move the cursor, change colours, reorder a line or fail to encode.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def clean(name: str) -> str:
    """The name on one line, with nothing in it that a terminal would obey.

    Runs of white space become one space, everything else that is unsafe a question mark.
    """
    spaced = re.sub(r"[\s\x1c-\x1f\x85\u2028\u2029]+", " ", name)
    return "".join("?" if unicodedata.category(c) in _UNSAFE else c for c in spaced).strip()


def encodable(name: str) -> str:
    """The name as recorded, for JSON, but for lone surrogates, which no UTF-8 can hold."""
    return name.encode("utf-8", "replace").decode("utf-8")


def encodable_all(value: Result) -> Result:
    """The value with every text in it made fit for JSON: dataclasses, tuples and dicts of text."""
    made: Any = value
    if isinstance(value, str):
        made = encodable(value)
    elif isinstance(value, tuple):
        made = tuple(map(encodable_all, value))
    elif isinstance(value, dict):
        made = {encodable_all(k): encodable_all(v) for k, v in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        made = replace(
            value, **{f.name: encodable_all(getattr(value, f.name)) for f in fields(value)}
        )
    return cast("Result", made)


def middle(text: str, width: int, ellipsis: str) -> str:
    """The text in at most `width` cells, shortened in its middle: both ends of a name tell."""
    if cell_len(text) <= width:
        return text
    room = width - cell_len(ellipsis)
    if room < 2:
        return _head(text, width)
    tail = _head(text[::-1], room // 2)[::-1]
    return _head(text, room - cell_len(tail)) + ellipsis + tail


def _head(text: str, width: int) -> str:
    """The longest beginning that fits into `width` cells."""
    used = 0
    for index, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return text[:index]
    return text


def source_line(site: Site) -> str:
    """The line, with as much of the path as tells: "managers/overlap_utils.py:639 resolve"."""
    line = f":{site.line}" if site.line > 0 else ""
    return f"{_last_two(clean(site.file))}{line} {clean(site.function)}".rstrip()


def chain(names: Sequence[str], width: int, ellipsis: str) -> str:
    """The names, outermost first, in at most `width` cells; whole names go before letters do."""
    kept = [clean(name) for name in names]
    text = " > ".join(kept)
    while cell_len(text) > width and len(kept) > 2:
        # The outermost says which phase, the innermost what; what is between goes first.
        del kept[len(kept) // 2]
        cut = (len(kept) + 1) // 2
        text = " > ".join([*kept[:cut], ellipsis, *kept[cut:]])
    return middle(text, width, ellipsis)


def frame(name: str) -> str:
    """A Python frame as profilers name it, "/a/b/c/d.py(12): f", with less of its path."""
    found = re.fullmatch(r"(.*[\\/].*)(\(\d+\): .*)", name)
    return _last_two(found[1]) + found[2] if found else name


def _last_two(path: str) -> str:
    return "/".join(re.split(r"[\\/]", path)[-2:])
