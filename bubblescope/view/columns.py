"""Columns of integers as few bytes: differences, zigzag, byte planes; the page undoes them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from bubblescope.errors import BubblescopeError


class Column(msgspec.Struct, frozen=True):
    """Where a column lies in the packed bytes and how to read it.

    width: bytes a value, each in a plane of its own, lowest first. delta: values are differences
    to the one before. at: offset of the first plane; each plane is `rows` bytes long.
    """

    rows: int
    width: int
    delta: bool
    at: int


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Columns by name and the bytes that they lie in."""

    columns: dict[str, Column]
    data: bytes


def pack(columns: dict[str, npt.NDArray[np.integer]], rising: frozenset[str]) -> Packed:
    """The columns in few bytes that deflate well; `rising` names those kept as differences.

    Raises:
        BubblescopeError: a value is too large for the page.
    """
    found: dict[str, Column] = {}
    planes: list[bytes] = []
    at = 0
    for name, values in columns.items():
        whole = np.asarray(values, np.int64)
        delta = name in rising
        signed = np.diff(whole, prepend=0) if delta else whole
        unsigned = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
        most = int(unsigned.max()) if len(unsigned) else 0
        width = (most.bit_length() + 7) // 8
        if most >> 53:
            raise BubblescopeError(
                f"{name} has values over 2^52 (52 days): a page cannot hold them exactly; "
                "record less, or use bubblescope export"
            )
        found[name] = Column(len(whole), width, delta, at)
        for plane in range(width):
            planes.append((unsigned >> np.uint64(8 * plane)).astype(np.uint8).tobytes())
        at += width * len(whole)
    return Packed(found, b"".join(planes))
