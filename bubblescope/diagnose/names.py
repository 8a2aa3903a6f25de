"""Names of ranges that differ in a number only: one name for all of them."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from bubblescope.timeline import Coded, Ranges

_NUMBER = re.compile(r"#?\d+")
_COUNTED = re.compile(r"#\d+")


def generic(name: str) -> str:
    """The name with its numbers left open: `step[DECODE] #12` is one of `step[DECODE] #`."""
    return _NUMBER.sub("#", name)


def merged(ranges: Ranges) -> Coded:
    """The names of ranges, with those of numbered annotations joined.

    `decode 1` and `decode 2` are both `decode #`. The numbers of an annotation that occurs with one
    only stay, and so do those of ops and Python frames, where they tell things apart (`conv2d`);
    counts (`#12`) are left open in every name.
    """
    names = ranges.name
    annotation = np.unique(names.codes[ranges.kind.where(lambda kind: kind == "annotation")])
    found = {names.values[code] for code in annotation.tolist()}
    often = Counter(map(generic, found))

    def one(name: str) -> str:
        if name in found and often[generic(name)] > 1:
            return generic(name)
        return _COUNTED.sub("#", name)

    return names.map(one)
