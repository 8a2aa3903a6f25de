"""Decimal texts in microseconds to integer nanoseconds, never by way of a float."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_NEWLINE = 10
_LOWER_E = ord("e")
_NUMBER = re.compile(rb"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_MICROSECONDS = pa.decimal128(28, 3)
# Arrow checks overflow for neither long texts nor exponents: longer ones take the slow road.
_SAFE_LENGTH = 28
_FINE = pa.decimal128(38, 18)
_FITS_FINE = r"^-?[0-9]{1,19}(\.[0-9]{1,18})?$"
_CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_THOUSANDTH = Decimal("0.001")
_INT64 = range(-(2**63), 2**63)


def to_ns(
    texts: Sequence[bytes | msgspec.Raw],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Nanoseconds of JSON numbers (or numbers in quotes) that count microseconds.

    Exact to the nanosecond; what is finer is rounded half to even.

    Returns:
        int64 shape (rows,), and a mask of the rows that held a number that fits; the rest are 0.
    """
    rows = len(texts)
    joined = b"\n".join(texts).translate(None, b'"')
    characters = np.frombuffer(joined, np.uint8)
    breaks = np.flatnonzero(characters == _NEWLINE)
    if len(breaks) != rows - 1:  # no rows at all, or a value of several lines, which is no number
        return _one_by_one([bytes(t).replace(b'"', b"") for t in texts])
    offsets = np.empty(rows + 1, np.int32)
    offsets[0] = 0
    offsets[1:-1] = breaks - np.arange(rows - 1)
    offsets[-1] = len(characters) - len(breaks)
    characters = characters[characters != _NEWLINE]
    strings = pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(characters)]
    )
    if np.diff(offsets).max() <= _SAFE_LENGTH and not (characters | 32 == _LOWER_E).any():
        try:
            return _thousandths(strings.cast(_MICROSECONDS))
        except pa.ArrowInvalid:
            pass  # a row that is no number, or is finer than a nanosecond
    return _mixed(strings, joined.split(b"\n"))


def _mixed(
    strings: pa.Array, texts: list[bytes]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Rows of up to 18 decimals in one go, the odd ones singly."""
    plain = pc.match_substring_regex(strings, _FITS_FINE).to_numpy(zero_copy_only=False)
    ns = np.zeros(len(texts), np.int64)
    good = np.zeros(len(texts), np.bool_)
    fine = strings.filter(pa.array(plain)).cast(_FINE)
    rounded = pc.round(fine, 3, round_mode="half_to_even").cast(pa.decimal128(38, 3))
    ns[plain], good[plain] = _thousandths(rounded)
    odd = np.flatnonzero(~plain)
    ns[odd], good[odd] = _one_by_one([texts[i] for i in odd.tolist()])
    return ns, good


def _thousandths(
    decimals: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The unscaled integers of a decimal128 column of scale 3, and whether each fits in int64."""
    words = np.frombuffer(decimals.buffers()[1], np.int64)
    words = words[2 * decimals.offset : 2 * (decimals.offset + len(decimals))].reshape(-1, 2)
    low = words[:, 0].copy()
    good = words[:, 1] == low >> 63
    low[~good] = 0
    return low, good


def _one_by_one(
    texts: list[bytes],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    ns = np.zeros(len(texts), np.int64)
    good = np.zeros(len(texts), np.bool_)
    for row, text in enumerate(texts):
        value = _exact(text)
        if value is not None:
            ns[row], good[row] = value, True
    return ns, good


def _exact(text: bytes) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    try:
        microseconds = Decimal(text.decode()).quantize(_THOUSANDTH, context=_CONTEXT)
    except InvalidOperation:  # too many digits for any clock
        return None
    value = int(microseconds.scaleb(3, _CONTEXT))
    return value if value in _INT64 else None
