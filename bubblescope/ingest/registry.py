"""The formats that can be read, and what else a file may turn out to be."""

from __future__ import annotations

from bubblescope.ingest import kineto, nsys, nsys_report, saved
from bubblescope.ingest.format import Format
from bubblescope.ingest.source import Source, refusal

FORMATS: tuple[Format, ...] = (
    kineto.FORMAT,
    nsys.FORMAT,
    nsys_report.FORMAT,
    saved.FORMAT,
)

_UTF_8 = "convert it: iconv -f UTF-16 -t UTF-8"
_UNPACK = "unpack it first; gzip and zstd need not be"
# Files that people do point at: how they begin, what they are, what to do next.
_STRANGERS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"version https://git-lfs",
        "is a Git LFS pointer, not the file itself",
        "fetch it with 'git lfs pull'",
    ),
    (
        b"\x80\x04",
        "is a Python pickle, as PyTorch writes memory snapshots: no timeline",
        "record with torch.profiler and export_chrome_trace",
    ),
    (
        b"NVR\0",
        "is an Nsight Compute report: single kernels, no timeline",
        "record with torch.profiler or Nsight Systems",
    ),
    (b"<", "is a web page, not the file itself", "download the raw file"),
    (b"\xff\xfe", "is text in UTF-16", _UTF_8),
    (b"\xfe\xff", "is text in UTF-16", _UTF_8),
    (b"\x1f\x8b", "is packed twice with gzip", "unpack it once"),
    (b"BZh", "is packed with bzip2", _UNPACK),
    (b"\xfd7zXZ", "is packed with xz", _UNPACK),
)
_TAR = slice(257, 262), b"ustar"


def find(source: Source) -> Format:
    """The format of `source`, by its content; `BubblescopeError` where none matches."""
    for format_ in FORMATS:
        if format_.matches(source.head):
            return format_
    for beginning, what, advice in _STRANGERS:
        if source.head.startswith(beginning):
            raise refusal(source.path, what, advice)
    place, magic = _TAR
    if source.head[place] == magic:
        raise refusal(source.path, "is a tar archive", "unpack it and name the trace in it")
    raise refusal(
        source.path,
        f"not a trace: it begins with {source.head[:16]!r}",
        f"what can be read is {' or '.join(f.name for f in FORMATS)}",
    )
