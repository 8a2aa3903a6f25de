"""What-ifs: each says what would be different, and edits a graph so."""

from bubblescope.predict.whatifs.base import WhatIf
from bubblescope.predict.whatifs.hostwork import OffPath
from bubblescope.predict.whatifs.kernels import Pdl, SpeedUp
from bubblescope.predict.whatifs.launching import Capture, Merge, WithoutLaunch
from bubblescope.predict.whatifs.passes import OfPass
from bubblescope.predict.whatifs.reading import WithoutRead, WithoutWait
from bubblescope.predict.whatifs.text import parse

__all__ = [
    "Capture",
    "Merge",
    "OfPass",
    "OffPath",
    "Pdl",
    "SpeedUp",
    "WhatIf",
    "WithoutLaunch",
    "WithoutRead",
    "WithoutWait",
    "parse",
]
