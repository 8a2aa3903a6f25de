"""Packed files: gzip and zstd, piece by piece, everything that comes before a cut."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_IN = 1 << 18
_OUT = 4 << 20
_GZIP_BITS = 16 + zlib.MAX_WBITS


class DamagedError(Exception):
    """Packed data that cannot be unpacked from some point on."""


def kind(beginning: bytes) -> str:
    """How a file that begins so is packed: "gzip", "zstd" or "" (not)."""
    if beginning.startswith(GZIP):
        return "gzip"
    return "zstd" if beginning.startswith(ZSTD) else ""


def unpacked(file: IO[bytes], how: str) -> Iterator[bytes]:
    """The content of a packed file, in pieces.

    Raises:
        EOFError: the data ends early; all that could be unpacked was yielded before.
        DamagedError: the data is not what it was, or something else follows it.
    """
    return _gunzip(file) if how == "gzip" else _unzstd(file)


def _gunzip(file: IO[bytes]) -> Iterator[bytes]:
    """Members one after the other, as `gzip -c A B` and multi-threaded packers write them."""
    member = zlib.decompressobj(_GZIP_BITS)
    packed, begun, whole = b"", False, False
    while packed := packed or file.read(_IN):
        if whole and not begun and not (packed := packed.lstrip(b"\0")):
            continue  # zeros between members or after the last are padding
        try:
            piece = member.decompress(packed, _OUT)
        except zlib.error as error:
            raise DamagedError(str(error)) from None
        begun = True
        if piece:
            yield piece
        packed = member.unconsumed_tail
        if member.eof:
            packed, begun, whole = member.unused_data, False, True
            member = zlib.decompressobj(_GZIP_BITS)
    if begun or not whole:
        if rest := member.flush():
            yield rest
        raise EOFError


def _unzstd(file: IO[bytes]) -> Iterator[bytes]:
    """Arrow's reader drops the piece in which a cut lies: it is read again in smaller ones."""
    done, streams = 0, []  # a stream that goes away closes the file
    for size in (_OUT, 1 << 12, 1):
        file.seek(0)
        streams.append(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd"))
        try:
            _skip(streams[-1], done)
            while piece := streams[-1].read(size):
                done += len(piece)
                yield piece
        except OSError as error:
            if "runcated" not in str(error):
                raise DamagedError(str(error)) from None
        else:
            return
    raise EOFError


def _skip(stream: pa.CompressedInputStream, count: int) -> None:
    while count:
        count -= len(stream.read(min(count, _OUT)))
