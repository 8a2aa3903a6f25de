"""What-ifs as text: what a pass declares, and what the command line makes of its options."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from bubblescope.errors import BubblescopeError
from bubblescope.predict.whatifs.base import WhatIf
from bubblescope.predict.whatifs.hostwork import OffPath
from bubblescope.predict.whatifs.kernels import Pdl, SpeedUp
from bubblescope.predict.whatifs.launching import Capture, Merge, WithoutLaunch
from bubblescope.predict.whatifs.reading import WithoutRead, WithoutWait


def parse(text: str) -> WhatIf:
    """The what-if that a text says.

    "read:SITE", "wait:SITE", "launch:NAME", "host:NAME", "merge:NAME", "capture:RANGE",
    "speed-up:NAME=K", "pdl:NAME" or "pdl:NAME=US", the last with how much of each kernel can
    overlap, in microseconds.

    Raises:
        BubblescopeError: it says none.
    """
    kind, colon, rest = text.partition(":")
    if not colon or kind not in _KINDS or not rest:
        known = ", ".join(f"{name}:..." for name in _KINDS)
        raise BubblescopeError(f"{text!r} is no what-if; there are {known}")
    return _KINDS[kind](rest)


def speed_up(text: str) -> SpeedUp:
    """From "NAME=K", K a number or a fraction: 2, 1.5, 3/2."""
    name, equals, factor = text.rpartition("=")
    if not equals or not name:
        raise BubblescopeError(f"{text!r}: write NAME=K, K times as fast, as in gemm=2")
    return SpeedUp(name, _number(factor, text))


def pdl(text: str) -> Pdl:
    """From "NAME" or "NAME=US"."""
    name, equals, us = text.rpartition("=")
    if not equals:
        return Pdl(text)
    return Pdl(name or "*", int(_number(us, text) * 1000))


def _number(text: str, where: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise BubblescopeError(f"{where!r}: {text!r} is not a number") from None


_KINDS: dict[str, Callable[[str], WhatIf]] = {
    "read": WithoutRead,
    "wait": WithoutWait,
    "launch": WithoutLaunch,
    "host": OffPath,
    "merge": Merge,
    "capture": Capture,
    "speed-up": speed_up,
    "pdl": pdl,
}
