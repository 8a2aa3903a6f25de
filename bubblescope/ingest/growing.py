"""Columns that grow: in place, so that many small parts leave no holes in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_FIRST = 4096


class Growing:
    """An array to which others are added at its end."""

    def __init__(self, like: npt.NDArray[Any]) -> None:
        """Empty, with the type of `like`."""
        self._values = np.empty(_FIRST, like.dtype)
        self._used = 0

    def add(self, part: npt.NDArray[Any]) -> None:
        """Add the elements of `part`."""
        end = self._used + len(part)
        if end > len(self._values):
            # An eighth more than is needed: few moves, and little that stays unused.
            self._values.resize(end + end // 8, refcheck=False)
        self._values[self._used : end] = part
        self._used = end

    def done(self) -> npt.NDArray[Any]:
        """All elements. Nothing may be added any more."""
        self._values.resize(self._used, refcheck=False)
        return self._values
