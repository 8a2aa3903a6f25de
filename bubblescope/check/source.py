"""The text of a source line, where the file is on this machine as it was when it was recorded."""

from __future__ import annotations

from pathlib import Path

from bubblescope.diagnose.model import Site

_MOST_BYTES = 4 << 20


def line_of(site: Site | None, recorded_ns: int) -> str:
    """The line without its indent, "" where it is not here or not what ran.

    Recordings come from anywhere, so only Python files of a sane size are opened.

    Args:
        site: the line.
        recorded_ns: a time of the recording, ns since the Unix epoch: a file that was written
            later may say something else.
    """
    if site is None or site.line < 1 or not site.file.endswith(".py"):
        return ""
    path = Path(site.file)
    try:
        if not path.is_file():
            return ""
        status = path.stat()
        if status.st_size > _MOST_BYTES or status.st_mtime_ns > recorded_ns:
            return ""
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return ""
    return lines[site.line - 1].strip() if site.line <= len(lines) else ""
