"""What the doctor says: one check a line, and what can be recorded as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a thing stands: usable, not there, there but too old, or there and not usable."""

    OK = "ok"
    MISSING = "missing"
    OLD = "too old"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True)
class Check:
    """One line.

    name: stable, for programs. group: lines that belong together. found: what was seen. why: the
    same in a few words, where it stands in the way of something. do: what to do about it, as a
    command where there is one, "" where there is nothing to do. optional: no recording needs it.
    """

    name: str
    group: str
    title: str
    state: State
    found: str
    why: str = ""
    do: str = ""
    optional: bool = False
    version: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Capture:
    """A way of recording: whether it works here, and if not, what stands in its way first."""

    name: str
    title: str
    can: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """All of it."""

    captures: tuple[Capture, ...]
    checks: tuple[Check, ...]
