"""Call stacks that a Kineto file gives as text, as old files do and verbose ones still."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bubblescope.capture.frames import is_framework

FRAME = re.compile(r"(.+)\(([0-9]{1,9})\): (.+)", re.DOTALL)
"""A frame as Kineto writes it: "engine.py(12): step"."""

Sites = dict[tuple[str, int, str], int]
"""(file, line, function) to its row in the table of frames, in that order."""


def sites_of(stacks: Sequence[str], sites: Sites) -> npt.NDArray[np.int64]:
    """The row in `sites` of the place that each stack was in, shape (stacks,); -1: no frame in it.

    That is the innermost frame outside the frameworks, else the innermost. New places are added.
    """
    rows = [_site(text, sites) for text in stacks]
    return np.array(rows, np.int64).reshape(-1)


def _site(text: str, sites: Sites) -> int:
    found = [m for m in map(FRAME.fullmatch, map(str.strip, text.split(";"))) if m]  # inside out
    own = next((m for m in found if not is_framework(m[1])), found[0] if found else None)
    if own is None:
        return -1
    return sites.setdefault((own[1], int(own[2]), own[3]), len(sites))
