"""A recording with its diagnosis: one side of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bubblescope.diagnose import Diagnosis, diagnose
from bubblescope.timeline import Timeline

Window = tuple[int | None, int | None]
"""Steps [first, last) by number, None for an open end."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A recording and what was found in it. window: the steps that the diagnosis was asked for."""

    timeline: Timeline
    diagnosis: Diagnosis
    window: Window | None = None

    @classmethod
    def of(
        cls,
        timeline: Timeline,
        *,
        marker: str | None = None,
        window: Window | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> Run:
        """Diagnose a recording; arguments and errors as of `diagnose`."""
        diagnosis = diagnose(timeline, marker=marker, window=window, progress=progress)
        return cls(timeline, diagnosis, window)
