"""An input file: opened read-only, unpacked by its content."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO

from bubblescope.errors import BubblescopeError
from bubblescope.ingest.unpack import DamagedError, kind, unpacked

_HEAD = 1024
_PIECE = 4 << 20
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

    head: its first bytes, unpacked. size: bytes on disk. packed: "gzip", "zstd" or "".
    strict: refuse the file where it is cut or damaged, rather than read what is whole of it.
    """

    path: Path
    head: bytes
    size: int
    packed: str
    strict: bool

    @classmethod
    def open(cls, path: Path, *, strict: bool = False) -> Source:
        """Look at the beginning of `path`; `BubblescopeError` where that is not possible."""
        head, packed = b"", ""
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                raise refusal(path, "is a folder", "name one file in it")
            if not stat.S_ISREG(status.st_mode):
                raise refusal(path, "is not a regular file", "copy it into one first")
            with path.open("rb") as file:
                packed = kind(file.read(4))
                file.seek(0)
                for piece in unpacked(file, packed) if packed else [file.read(_HEAD)]:
                    head += piece[:_HEAD]
                    if len(head) >= _HEAD:
                        break
        except EOFError:
            if not head:
                raise refusal(path, f"cut short: {_ends_early(path, packed)}", _AGAIN) from None
        except (OSError, DamagedError) as error:
            raise _unreadable(path, packed, error) from None
        if not head:
            what = f"is a {packed} file with nothing in it" if packed else "is empty (0 bytes)"
            raise refusal(path, what, "record it again")
        return cls(path, head[:_HEAD], status.st_size, packed, strict)

    def pieces(self, progress: Callable[[float], None]) -> Pieces:
        """The content, to be read piece by piece; `progress` is told the share read."""
        return Pieces(self, progress)

    def read(self, progress: Callable[[float], None]) -> tuple[bytearray, str]:
        """The whole content, unpacked, and how its packed data ends early ("" where it does not).

        `progress` is told the share read. A `strict` source is refused where its data ends early.
        """
        if not self.packed:
            try:
                with self.path.open("rb", buffering=0) as plain:
                    return _all_of(plain, self.size, progress), ""
            except OSError as error:
                raise _unreadable(self.path, self.packed, error) from None
        content, pieces = bytearray(), self.pieces(progress)
        for piece in pieces:
            content += piece
        return content, pieces.cut


@dataclass(slots=True)
class Pieces:
    """The content of a source, unpacked, a few megabytes at a time.

    cut: how its packed data ends early, "" where it does not; known when all was read. A `strict`
    source is refused there.
    """

    source: Source
    progress: Callable[[float], None]
    cut: str = ""

    def __iter__(self) -> Iterator[bytes]:
        """Each piece; `BubblescopeError` where it cannot be read."""
        path, packed, size = self.source.path, self.source.packed, self.source.size
        try:
            with path.open("rb") as file:
                for piece in unpacked(file, packed) if packed else _plain(file):
                    yield piece
                    self.progress(min(1.0, file.tell() / size))
        except EOFError:
            self.cut = _ends_early(path, packed)
            if self.source.strict:
                raise refusal(path, f"cut short: {self.cut}", _AGAIN) from None
        except (OSError, DamagedError) as error:
            raise _unreadable(path, packed, error) from None


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _all_of(file: FileIO, size: int, progress: Callable[[float], None]) -> bytearray:
    """The content of a plain file, read to where it stays."""
    content = bytearray(size)
    done = 0
    with memoryview(content) as view:
        while count := file.readinto(view[done : done + _PIECE]):
            done += count
            progress(done / size)
    del content[done:]  # it has become shorter meanwhile
    return content


def _ends_early(path: Path, packed: str) -> str:
    return f"the {packed} data ends early, at byte {path.stat().st_size:,}"


def _unreadable(path: Path, packed: str, error: Exception) -> BubblescopeError:
    match error:
        case DamagedError():
            return refusal(path, f"damaged {packed} data ({error})", _AGAIN)
        case FileNotFoundError():
            return refusal(path, "no such file", "check the path")
        case PermissionError():
            return refusal(path, "no permission to read it", "change its permissions or its owner")
        case OSError(strerror=str(reason)):
            return refusal(path, f"cannot be read ({reason})", "check the path and the disk")
    return refusal(path, f"cannot be read ({error})", "check the path and the disk")
