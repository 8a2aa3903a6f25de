"""What a pass is: one fix, that can be switched on and off alone."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Addresses:
    """What a pass helps against: a kind of finding, and the CUDA calls that it concerns.

    kind: "blocking read" or a part's name. call, file: patterns that the call's name and the source
    file of its site must match, where they are given.
    """

    kind: str
    call: str = ""
    file: str = ""

    def fits(self, kind: str, call: str, file: str = "") -> bool:
        """Whether a finding of this kind, about this call in this file, is addressed."""
        found = re.search(self.call, call) and re.search(self.file, file)
        return kind == self.kind and found is not None


@dataclass(frozen=True, slots=True)
class PassEntry:
    """One pass as the registry lists it.

    name, summary: what it is called and, in one sentence, what it does. addresses: the findings
    that it helps against. targets: names of the targets that it can be put on. needs: hardware and
    other passes, in words or by name. keeps_bits: the same results, bit by bit; else it rounds.
    rounds_on: targets on which it rounds all the same. parts: passes that it is made of. gate: how
    its correctness is checked. live: it can be put on and taken off between two steps of a target
    that runs; else only while the target is stopped. models: what it does, as
    `bubblescope.predict.parse` reads it: "read:PATTERN" and the like.
    """

    name: str
    summary: str
    addresses: tuple[Addresses, ...]
    targets: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    keeps_bits: bool = True
    rounds_on: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    gate: str = ""
    live: bool = False
    models: tuple[str, ...] = ()

    def keeps_bits_on(self, target: str) -> bool:
        """Whether results on the target of that name are the same, bit by bit."""
        return self.keeps_bits and target not in self.rounds_on

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The pass is on until this exits, which leaves no trace, whatever else was on or off.

        `target` is one of `targets`, started or not.
        """
        raise NotImplementedError(f"{self.name} says what it addresses, not how it is put on")
