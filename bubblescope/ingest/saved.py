"""The .bscope file: a Timeline that bubblescope wrote."""

from __future__ import annotations

import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

from bubblescope.ingest.format import Format, Progress
from bubblescope.ingest.source import Source, refusal
from bubblescope.timeline import Timeline, bscope

# What the zip and Parquet readers raise, among others, over bytes that are not what they were.
_DAMAGE = (OSError, EOFError, RuntimeError, LookupError, TypeError, struct.error, zlib.error)


def _matches(head: bytes) -> bool:
    return head.startswith(b"PK\x03\x04")


def _read(source: Source, progress: Progress) -> Timeline:
    progress("read", 0.0)
    _refuse_other_archives(source.path)
    try:
        timeline = bscope.read(source.path)
    except _DAMAGE as error:
        problem = f"damaged .bscope file ({str(error) or type(error).__name__})"
        raise refusal(source.path, problem, "copy it again, or record it again") from None
    progress("read", 1.0)
    return timeline


def _refuse_other_archives(path: Path) -> None:
    with suppress(zipfile.BadZipFile, *_DAMAGE), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if not any(name == "meta.json" or name.endswith(".parquet") for name in names):
            listed = ", ".join(names[:3]) or "nothing"
            problem = f"is a zip archive that holds {listed}: no .bscope file"
            raise refusal(path, problem, "unzip it and name the trace in it")


FORMAT = Format(".bscope", _matches, _read)
