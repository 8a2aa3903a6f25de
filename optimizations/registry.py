"""The passes that there are, and which findings each addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Addresses:
    """What a pass helps against: a kind of finding, and the CUDA calls that it concerns.

    kind: "blocking read" or a part's name. call: a pattern that the call's name must match.
    """

    kind: str
    call: str = ""

    def fits(self, kind: str, call: str) -> bool:
        """Whether a finding of this kind, about this call, is addressed."""
        return kind == self.kind and re.search(self.call, call) is not None


@dataclass(frozen=True, slots=True)
class PassEntry:
    """One pass as the registry lists it: its name, one sentence, and what it addresses."""

    name: str
    summary: str
    addresses: tuple[Addresses, ...]


PASSES: list[PassEntry] = []
"""Every pass, in the order in which reports name them."""


def passes_for(kind: str, call: str) -> tuple[str, ...]:
    """Names of the passes that address a finding."""
    return tuple(p.name for p in PASSES if any(a.fits(kind, call) for a in p.addresses))
