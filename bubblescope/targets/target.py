"""What capture, ablation and passes know of a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from bubblescope.capture.backend import Backend


class Target(Protocol):
    """A decode loop that can be run step by step at batch 1."""

    @property
    def name(self) -> str:
        """As the registry and the passes call it."""
        ...

    def about(self) -> dict[str, str]:
        """Model, shard, weights, acceptance, device: what a report must say of it."""
        ...

    def start(self) -> None:
        """Load weights and capture graphs; the next call may be `step`."""
        ...

    def step(self) -> None:
        """Run exactly one decode step; the device may still be at work when this returns."""
        ...

    def stop(self) -> None:
        """Finish what runs and give everything back; a stopped target can be started again."""
        ...

    def backends(self) -> Sequence[Backend]:
        """What can record it, the best first.

        One that has `prepare` must be prepared before the target starts, to see its graphs.
        """
        ...


class Switch:
    """A hook point that passes turn on: on while any of them wants it, whatever their order."""

    def __init__(self) -> None:
        self._wanted = 0

    def __bool__(self) -> bool:
        return self._wanted > 0

    @contextmanager
    def on(self) -> Iterator[None]:
        """On until this exits."""
        self._wanted += 1
        try:
            yield
        finally:
            self._wanted -= 1
