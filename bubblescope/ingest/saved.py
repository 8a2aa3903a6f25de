"""The .bscope file: a Timeline that bubblescope wrote."""

from __future__ import annotations

import struct
import zlib

from bubblescope.ingest.format import Format, Progress
from bubblescope.ingest.source import Source, refusal
from bubblescope.timeline import Timeline, bscope

# What the zip and Parquet readers raise, among others, over bytes that are not what they were.
_DAMAGE = (OSError, EOFError, RuntimeError, LookupError, TypeError, struct.error, zlib.error)


def _matches(head: bytes) -> bool:
    return head.startswith(b"PK\x03\x04")


def _read(source: Source, progress: Progress) -> Timeline:
    progress("read", 0.0)
    try:
        timeline = bscope.read(source.path)
    except _DAMAGE as error:
        problem = f"damaged .bscope file ({str(error) or type(error).__name__})"
        raise refusal(source.path, problem, "copy it again, or record it again") from None
    progress("read", 1.0)
    return timeline


FORMAT = Format(".bscope", _matches, _read)
