"""Small conversions from decoded values to columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bubblescope.timeline import Coded

_DIGITS = re.compile(r"(?:^-|(?<![0-9.]))[0-9]+$")
_HEX = re.compile(r"0[xX]([0-9a-fA-F]{1,16})")
_INT64 = range(-(2**63), 2**63)


class Codes(dict[str, int]):
    """String to code, in order of first appearance; looking up a new string gives it the next."""

    def __missing__(self, key: str) -> int:
        """A new string takes the next code."""
        code = self[key] = len(self)
        return code

    def column(self, strings: Sequence[str]) -> npt.NDArray[np.int32]:
        """Codes of `strings`, int32 shape (rows,)."""
        return np.fromiter(map(self.__getitem__, strings), np.int32, len(strings))

    def raw_column(self, rows: Sequence[Sequence[msgspec.Raw]]) -> npt.NDArray[np.int32]:
        """Codes of JSON texts as they stand, those of a row joined; int32 shape (rows,).

        Every row has the same number of texts. Only distinct ones become strings.
        """
        if not rows:
            return np.zeros(0, np.int32)
        text = b"\0".join(chain.from_iterable(rows)) + b"\0"  # no JSON has this byte
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 0)[len(rows[0]) - 1 :: len(rows[0])]
        offsets = np.zeros(len(rows) + 1, np.int32)
        offsets[1:] = ends + 1
        found = pa.Array.from_buffers(
            pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        ).dictionary_encode()
        distinct = [
            t.replace(b"\0", b"").decode("utf-8", "replace") for t in found.dictionary.to_pylist()
        ]
        which: npt.NDArray[np.int32] = found.indices.to_numpy()
        return self.column(distinct)[which]


def coded(codes: npt.NDArray[Any], values: Sequence[str]) -> Coded:
    """A column under a dictionary that holds only what the column uses."""
    used = np.flatnonzero(np.bincount(codes, minlength=len(values)))
    new = np.zeros(len(values), np.int32)
    new[used] = np.arange(len(used), dtype=np.int32)
    return Coded(new[codes], tuple(values[i] for i in used.tolist()))


def integers(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """An int64 column of ids; -1 where a value is no integer or does not fit."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(integer, values), np.int64, len(values))


def integer(value: Any) -> int:
    """`value` as an id: an integer, or the digits that end a text ("stream 7"); else -1.

    A text may also be hexadecimal ("0x1f").
    """
    if isinstance(value, str) and (hexadecimal := _HEX.fullmatch(value)):
        value = int(hexadecimal[1], 16)
    if isinstance(value, str):
        digits = _DIGITS.search(value)
        value = int(digits[0]) if digits and len(digits[0]) <= 20 else -1
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value in _INT64 else -1
