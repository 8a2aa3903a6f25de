"""Call sites: which frames are the program's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import CodeType

import numpy as np

from bubblescope.timeline import Frames
from bubblescope.timeline.tables import Int

_FRAMEWORK = re.compile(
    r"(^|[/\\])(torch|triton|cupy|jax|numba)[/\\]|^<(?!stdin|string|ipython)|[/\\]threading\.py$"
    r"|[/\\]bubblescope[/\\]capture[/\\]|[/\\]contextlib\.py$"
)


def is_framework(file: str) -> bool:
    """Whether a file belongs to a framework, so that the line that matters is further out."""
    return _FRAMEWORK.search(file) is not None


def table(rows: Sequence[tuple[CodeType, int]]) -> tuple[Frames, Int]:
    """The distinct sites of (code, line) rows, and each row's place among them, shape (rows,)."""
    seen: dict[tuple[str, int, str], int] = {}
    of_row = np.fromiter(
        (
            seen.setdefault((code.co_filename, line, code.co_qualname), len(seen))
            for code, line in rows
        ),
        np.int64,
        len(rows),
    )
    return _frames(seen), of_row


def _frames(sites: Iterable[tuple[str, int, str]]) -> Frames:
    sites = list(sites)
    return Frames.build(
        len(sites),
        file=[file for file, _, _ in sites],
        line=[line for _, line, _ in sites],
        function=[function for _, _, function in sites],
    )
