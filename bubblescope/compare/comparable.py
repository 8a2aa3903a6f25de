"""How far two recordings can be compared."""

from __future__ import annotations

from dataclasses import dataclass

from bubblescope.compare.model import Figure, Middle
from bubblescope.compare.run import Run

UNKNOWN_SHARE = 100
"""With more than one part in so many of the window unknown, idle is not compared."""
OVERLAP_SHARE = 100
"""Overlapped time differs if by more than one part in so many of A's step."""


@dataclass(frozen=True, slots=True)
class Comparable:
    """What can be compared. notes: a sentence on each thing that cannot, or only with care.

    idle: busy, idle and its parts. operations: device operations by kind and family. why_not: of
    idle, "" where it is comparable. settings: those notes that are on other ways to record and
    other devices.
    """

    idle: bool
    operations: bool
    why_not: str
    settings: tuple[str, ...]
    notes: tuple[str, ...]


def check(a: Run, b: Run) -> Comparable:
    """What of two runs can be compared."""
    hindrances: list[str] = []
    levels = a.diagnosis.level, b.diagnosis.level
    same_level = levels[0] == levels[1] or "" in levels
    if not same_level:
        hindrances.append(
            f"A was recorded at {levels[0]} level, B at {levels[1]} level: busy, idle and device "
            "operations are not compared"
        )
    devices = len(a.diagnosis.devices), len(b.diagnosis.devices)
    if devices[0] != devices[1]:
        hindrances.append(
            f"A has {devices[0]} devices, B {devices[1]}, and figures are sums over them: busy and "
            "idle are not compared"
        )
    for side, run in (("A", a), ("B", b)):
        window, unknown = run.diagnosis.total("window_ns"), run.diagnosis.total("unknown_ns")
        if UNKNOWN_SHARE * unknown > window:
            hindrances.append(
                f"{100 * unknown / window:.1f} % of {side}'s window is unknown: idle is not "
                "compared"
            )
    steps = a.diagnosis.steps, b.diagnosis.steps
    overlap = Figure.between(*(Middle.of(s.overlapped_ns[s.counted()]) for s in steps))
    if _differs(overlap, steps[0].median(steps[0].length_ns)):
        hindrances.append(
            f"operations overlap for {(overlap.a or 0) / 1000:,.0f} us a step in A and "
            f"{(overlap.b or 0) / 1000:,.0f} us in B (PDL, or streams side by side): a kernel that "
            "waits while it is resident counts as busy, so busy and idle are not compared"
        )
    settings = tuple(_settings(a, b))
    return Comparable(
        not hindrances,
        same_level and devices[0] == devices[1],
        hindrances[0] if hindrances else "",
        settings,
        (*hindrances, *settings, *_with_care(a, b)),
    )


def _differs(overlap: Figure, step: int | None) -> bool:
    """Beyond the spread between steps, and by more than a hundredth of A's step."""
    if overlap.difference is None or step is None:
        return False
    return overlap.beyond is not False and OVERLAP_SHARE * abs(overlap.difference) > step


def _with_care(a: Run, b: Run) -> list[str]:
    """What does not forbid a comparison, but must be known."""
    notes = []
    counted = [int(run.diagnosis.steps.counted().sum()) for run in (a, b)]
    for side, steps in zip("AB", counted, strict=True):
        if not steps:
            notes.append(f"no whole step was found in {side}: only what is in all is compared")
        elif steps == 1:
            notes.append(
                f"one step counts in {side}: the spread between steps is not known, so no "
                "difference can be called larger"
            )
    if min(counted) and a.diagnosis.marker != b.diagnosis.marker:
        notes.append(
            f"steps begin at {a.diagnosis.marker} in A and at {b.diagnosis.marker} in B: --marker "
            "names one for both"
        )
    many = [len(run.diagnosis.steps.number) for run in (a, b)]
    if min(many) and many[0] != many[1]:
        notes.append(
            f"A holds {many[0]:,} steps, B {many[1]:,}: what is given in all is of the recordings "
            "as they are"
        )
    if any(run.diagnosis.total("opaque_ns") for run in (a, b)):
        notes.append("graph replays were recorded whole: what is inside them is not compared")
    return notes


def _settings(a: Run, b: Run) -> list[str]:
    """Other ways to record, and other devices."""
    notes = []
    captures = [run.diagnosis.meta.capture for run in (a, b)]
    if captures[0] != captures[1] and all(captures):
        notes.append(
            f"A was recorded with {captures[0]}, B with {captures[1]}: each has its own cost in it"
        )
    names = [sorted({d.name for d in run.diagnosis.devices if d.name}) for run in (a, b)]
    if names[0] != names[1] and all(names):
        notes.append(f"A ran on {', '.join(names[0])}, B on {', '.join(names[1])}")
    return notes
