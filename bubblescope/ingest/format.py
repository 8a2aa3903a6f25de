"""What a format is: one module each, listed in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bubblescope.ingest.source import Source
from bubblescope.timeline import Timeline

Progress = Callable[[str, float], None]
"""Called with the name of a stage and the share of it that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file.

    matches: whether a file that begins with these (unpacked) bytes may be of this kind.
    read: the Timeline in such a file, or `BubblescopeError`.
    """

    name: str
    matches: Callable[[bytes], bool]
    read: Callable[[Source, Progress], Timeline]
