"""An input file: opened read-only, unpacked by its content."""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from bubblescope.errors import BubblescopeError

_HEAD = 1024
_PIECE = 4 << 20
_GZIP = b"\x1f\x8b"
_AGAIN = "copy it again whole, or record it again"


def refusal(path: Path, problem: str, advice: str) -> BubblescopeError:
    """The error for a file that cannot be read: one line, whatever the file's strings hold."""
    text = f"{path}: {problem}; {advice}"
    return BubblescopeError(
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read.

    head: its first bytes, unpacked. size: bytes on disk. packed: it is a gzip file.
    """

    path: Path
    head: bytes
    size: int
    packed: bool

    @classmethod
    def open(cls, path: Path) -> Source:
        """Look at the beginning of `path`; `BubblescopeError` where that is not possible."""
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                raise refusal(path, "is a folder", "name one file in it")
            if not stat.S_ISREG(status.st_mode):
                raise refusal(path, "is not a regular file", "copy it into one first")
            with path.open("rb") as file:
                packed = file.read(2) == _GZIP
                file.seek(0)
                head = (_unpacked(file) if packed else file).read(_HEAD)
        except (OSError, EOFError, zlib.error) as error:
            raise _unreadable(path, error) from None
        if not head:
            what = "is a gzip file with nothing in it" if packed else "is empty (0 bytes)"
            raise refusal(path, what, "record it again")
        return cls(path, head, status.st_size, packed)

    def read(self, progress: Callable[[float], None]) -> bytearray:
        """The whole content, unpacked. `progress` is told the share read."""
        content = bytearray()
        try:
            with self.path.open("rb") as file:
                stream = _unpacked(file) if self.packed else file
                while piece := stream.read(_PIECE):
                    content += piece
                    progress(min(1.0, file.tell() / self.size))
        except (OSError, EOFError, zlib.error) as error:
            raise _unreadable(self.path, error) from None
        return content


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=file, mode="rb"))


def _unreadable(path: Path, error: Exception) -> BubblescopeError:
    match error:
        case EOFError():
            size = path.stat().st_size
            return refusal(path, f"cut short: the gzip data ends early, at byte {size:,}", _AGAIN)
        case gzip.BadGzipFile() | zlib.error():
            return refusal(path, f"damaged gzip data ({error})", _AGAIN)
        case FileNotFoundError():
            return refusal(path, "no such file", "check the path")
        case PermissionError():
            return refusal(path, "no permission to read it", "change its permissions or its owner")
        case OSError(strerror=str(reason)):
            return refusal(path, f"cannot be read ({reason})", "check the path and the disk")
    return refusal(path, f"cannot be read ({error})", "check the path and the disk")
