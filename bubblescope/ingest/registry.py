"""The formats that can be read, and what else a file may turn out to be."""

from __future__ import annotations

from bubblescope.ingest import kineto, saved
from bubblescope.ingest.format import Format
from bubblescope.ingest.source import Source, refusal

FORMATS: tuple[Format, ...] = (
    kineto.FORMAT,
    saved.FORMAT,
)

# Files that people do point at: how they begin, what they are, what to do next.
_STRANGERS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"version https://git-lfs",
        "is a Git LFS pointer, not the file itself",
        "fetch it with 'git lfs pull'",
    ),
    (
        b"SQLite format 3\0",
        "is an SQLite file, which this version cannot read",
        "record with torch.profiler instead",
    ),
    (
        b"NVIDIA Tegra Profiler Report",
        "is an nsys report, which this version cannot read",
        "record with torch.profiler instead",
    ),
)


def find(source: Source) -> Format:
    """The format of `source`, by its content; `BubblescopeError` where none matches."""
    for format_ in FORMATS:
        if format_.matches(source.head):
            return format_
    for beginning, what, advice in _STRANGERS:
        if source.head.startswith(beginning):
            raise refusal(source.path, what, advice)
    raise refusal(
        source.path,
        f"not a trace: it begins with {source.head[:16]!r}",
        f"what can be read is {' or '.join(f.name for f in FORMATS)}",
    )
