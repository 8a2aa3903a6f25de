"""Grids and blocks of kernels as text: "84,1,1"."""

from __future__ import annotations

import numpy as np

from bubblescope.timeline.coded import Coded
from bubblescope.timeline.tables import Int

_Y, _Z = 31, 47
"""Bits below y and z: x has 31 bits, the others 16, as CUDA limits them."""
_LIMITS = (1 << 31, 1 << 16, 1 << 16)


def shape(x: Int, y: Int, z: Int) -> Coded:
    """The sizes of each row as "x,y,z"; "" where one is none that a kernel can have."""
    good = np.ones(len(x), np.bool_)
    for size, limit in zip((x, y, z), _LIMITS, strict=True):
        good &= (size > 0) & (size < limit)
    packed = np.where(good, x | (y << _Y) | (z << _Z), 0)
    found, code = np.unique(packed, return_inverse=True)
    values = [_text(value) if value else "" for value in found.tolist()]
    return Coded(code.reshape(-1).astype(np.int32), tuple(values))


def _text(packed: int) -> str:
    return f"{packed & ((1 << _Y) - 1)},{(packed >> _Y) & 0xFFFF},{packed >> _Z}"
