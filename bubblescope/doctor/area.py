"""An area of the examination: a probe that looks, and a judge that says what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bubblescope.doctor.machine import Machine
from bubblescope.doctor.model import Check

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Here:
    """What judges need of other areas: whether a GPU works here, and which one it is.

    gpu: None where one may be there, but out of order. driver: its version.
    """

    gpu: bool | None = None
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Area(Generic[T]):
    """One area.

    probe: looks at the machine and gives facts; it may crash or hang. judge: facts to checks; it
    looks at nothing else. stands_for: (name, group, title) of the checks that take the place of
    the judge's where the probe fails.
    """

    probe: Callable[[Machine], T]
    judge: Callable[[T, Here], list[Check]]
    stands_for: tuple[tuple[str, str, str], ...]
