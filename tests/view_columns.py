"""Packed columns read back as the page reads them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bubblescope.view.columns import Packed


def unpack(packed: Packed, name: str) -> npt.NDArray[np.int64]:
    """One column again, as the page reads it."""
    column = packed.columns[name]
    unsigned = np.zeros(column.rows, np.uint64)
    for plane in range(column.width):
        first = column.at + plane * column.rows
        found = np.frombuffer(packed.data, np.uint8, column.rows, first)
        unsigned |= found.astype(np.uint64) << np.uint64(8 * plane)
    signed = (unsigned >> np.uint64(1)).view(np.int64) ^ -(unsigned & np.uint64(1)).view(np.int64)
    return np.cumsum(signed) if column.delta else signed
