"""The top of the report: what ran, how it was recorded, and how far to trust it."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from bubblescope.diagnose.model import (
    Clocks,
    Diagnosis,
    HealthNote,
    Part,
    Phase,
    StepTable,
)
from bubblescope.report.findings import OF_STREAM_THREAD
from bubblescope.report.page import Page
from bubblescope.report.units import count, percent, span, us
from bubblescope.report.words import clean, middle

_LABELS = 10
_CLOSE_NS = 100_000
"""Bounds wider than this show only that nothing speaks against the clocks."""


def header(diagnosis: Diagnosis, page: Page, top: int) -> None:
    """Print it: one labelled paragraph each, doubts last, where they are not overlooked."""
    source = clean(diagnosis.meta.source)
    page.put(middle(source, page.width, page.ellipsis) or "a recording")
    for label, text in (
        ("run", run(diagnosis)),
        ("device", devices(diagnosis)),
        ("capture", _capture(diagnosis)),
        ("steps", _steps(diagnosis)),
        ("clocks", clocks(diagnosis.clocks)),
    ):
        if text:
            page.prose(text, indent=_LABELS, first=label)
    for text in doubts(diagnosis, top):
        page.prose(text, indent=_LABELS, first="! doubt", style="bold yellow")


def run(diagnosis: Diagnosis) -> str:
    """What ran: as the recording states it, else the names of its processes."""
    stated = clean(diagnosis.meta.about.get("run", ""))
    if stated:
        return stated
    names = [clean(t.name) for t in diagnosis.meta.threads if t.thread == -1]
    return ", ".join(dict.fromkeys(n for n in names if n and not n.startswith("python")))


def devices(diagnosis: Diagnosis) -> str:
    """As in "NVIDIA H200, rank 0 of 1" and "2 x NVIDIA H200, ranks 0, 1 of 8"."""
    names = Counter(clean(d.name) or "device not named" for d in diagnosis.devices)
    named = ", ".join(name if n == 1 else f"{n} x {name}" for name, n in names.items())
    ranks = sorted({d.rank for d in diagnosis.devices})
    size = diagnosis.meta.world_size
    if not ranks or ranks[0] < 0:
        return named or "no device"
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{named}, {noun} {_runs(ranks)} of {max(size, ranks[-1] + 1):,}"


def _runs(numbers: list[int]) -> str:
    """Long lists of ranks kept short: "0 to 7, 9"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)


def _capture(diagnosis: Diagnosis) -> str:
    """How it was recorded, and what the recording itself cost, as far as that is known."""
    meta = diagnosis.meta
    how = clean(meta.capture) or clean(meta.format) or "not stated"
    if diagnosis.level:
        how += f", {clean(diagnosis.level)} level"
    plain = meta.unprofiled_step_ns
    if plain is None:
        whose = "profiler" if meta.lengthens_graphs else "recorder"
        return f"{how}; no unprofiled step time in this file: times include the {whose}'s"
    measured = f"{how}; {us(plain)} us a step without any profiler"
    step = diagnosis.steps.median(diagnosis.steps.length_ns)
    if step is None or plain <= 0:
        return measured
    return f"{measured}, {step / plain:.2f} times that here"


def _steps(diagnosis: Diagnosis) -> str:
    """Whole steps, their median and range; those left out are said apart."""
    steps = diagnosis.steps
    if not len(steps.start):
        return "none found; --marker NAME names the range that begins each. Figures are totals"
    duration = steps.length_ns
    counted, whole = duration[steps.counted()], int(np.count_nonzero(steps.whole))
    said = f"{whole:,} whole{_phases(steps)}"
    if diagnosis.marker:
        said += f" (marker: {clean(diagnosis.marker)})"
    median = steps.median(duration)
    if median is not None and len(counted) == 1:
        said += f", {us(median)} us"
    elif median is not None:
        shortest, longest = us(int(counted.min())), us(int(counted.max()))
        said += f", median {us(median)} us, {shortest} to {longest}"
    outliers = duration[steps.whole & steps.outlier]
    if len(outliers):
        worst = us(int(outliers.max()))
        said += f"; {count(len(outliers), 'outlier')} apart, up to {worst} us"
    left_out = _left_out(steps)
    if left_out:
        said += f"; not counted: {left_out}"
    if diagnosis.marker.startswith("cycle of "):
        said += "; what repeats may be part of a step: --marker NAME names what begins each"
    return said


def _phases(steps: StepTable) -> str:
    """How many of the whole steps are of each phase: ": 8 decode, 1 prefill"."""
    phases = [Phase(p) for p in np.unique(steps.phase[steps.whole]).tolist()]
    if len(phases) < 2:
        return f", {phases[0].label}" if phases and phases[0].label else ""
    counts = ((p, int(np.count_nonzero(steps.whole & (steps.phase == p)))) for p in phases)
    return ": " + ", ".join(f"{n:,} {p.label or 'not told'}" for p, n in counts)


def _left_out(steps: StepTable) -> str:
    """The steps that no median is taken over, by the reason, but for outliers."""
    doubtful = ~steps.whole & (steps.parts_ns[:, Part.UNKNOWN] > 0)
    reasons = (
        ("cut", ~steps.whole & ~doubtful),
        ("partly unknown", doubtful),
        ("not decode", steps.whole & ~steps.alike() & (steps.phase != Phase.OTHER)),
        ("of other kernels", steps.whole & ~steps.alike() & (steps.phase == Phase.OTHER)),
        (
            "without its beginning",
            steps.whole & ~steps.outlier & ~steps.counted() & steps.alike(),
        ),
    )
    counts = ((reason, int(np.count_nonzero(mask))) for reason, mask in reasons)
    return ", ".join(f"{number:,} {reason}" for reason, number in counts if number)


def clocks(bounds: Clocks) -> str:
    """How far host and device clocks agree: the uncertainty of parts that join the two."""
    low, high, shift = bounds.low, bounds.high, bounds.shift
    if low is None and high is None:
        return "nothing in this file shows whether host and device clocks agree"
    if shift:
        moved = "later" if shift > 0 else "earlier"
        corrected = f"device times moved {us(abs(shift))} us {moved} to fit the host's"
        if low is None or high is None:
            return f"{corrected}; bounded on one side only"
        return f"{corrected}; they now agree to within {us(max(shift - low, high - shift))} us"
    if low is not None and high is not None and low > high:
        return (
            f"host and device clocks contradict each other by {us(low - high)} us: "
            "no one correction fits"
        )
    if (low is not None and low > 0) or (high is not None and high < 0):
        off = low if low is not None and low > 0 else -(high or 0)
        return f"host and device clocks are at least {us(off)} us apart, not corrected"
    if low is not None and high is not None and max(-low, high) <= _CLOSE_NS:
        return f"host and device clocks agree to within {us(max(-low, high))} us"
    if low is not None and high is not None:
        return (
            f"no sign that host and device clocks differ: the device's is at most {us(-low)} us "
            f"ahead and at most {us(high)} us behind"
        )
    if low is not None:
        return f"the device clock is at most {us(-low)} us ahead; how far behind is not recorded"
    return f"the device clock is at most {us(high or 0)} us behind; how far ahead is not recorded"


def doubts(diagnosis: Diagnosis, top: int) -> list[str]:
    """What is missing or doubtful, most general first."""
    said = [clean(warning) for warning in diagnosis.warnings]
    # The line on the clocks tells of a correction already.
    health = [h for h in diagnosis.health if h.kind != "clock skew" or not diagnosis.clocks.shift]
    notes = [note for note in map(_note, health) if not _told(note, said)]
    if len(notes) > top:
        left_out = count(len(notes) - top, "more note")
        notes[top:] = [f"and {left_out} in --json"]
    return said + notes


def _note(note: HealthNote) -> str:
    """A health note in words; most name their count themselves."""
    text, number = clean(note.note), f"{note.count:,}"
    if text.startswith(f"{clean(note.kind)}, "):  # and goes on with the counts of its parts
        return text
    if re.search(rf"(?<![\w.,]){number}(?![\w.,])", text):
        return text
    if text and note.count == 1:
        return f"{clean(note.kind)}: {text}"
    return f"{clean(note.kind)}: {number}" + (f", {text}" if text else "")


def _told(note: str, warnings: list[str]) -> bool:
    """Whether a warning begins with this note, and goes on to say what follows from it."""
    return any(warning.startswith(note) for warning in warnings)


def headline(diagnosis: Diagnosis) -> str:
    """One sentence: how much is idle, or why that cannot be said, or that it hardly matters."""
    window, idle = diagnosis.total("window_ns"), diagnosis.total("idle_ns")
    busy, unknown = diagnosis.total("busy_ns"), diagnosis.total("unknown_ns")
    if window <= 0:
        return "The window has no length: nothing to tell."
    if 20 * unknown > window:
        return (
            f"No figure for idle: {percent(unknown, window)} % of the window is unknown "
            "(launches or device operations were not recorded there), so anything from "
            f"{percent(idle, window)} to {percent(idle + unknown, window)} % may be idle."
        )
    if diagnosis.mostly_lost:
        return f"No figure for idle: {diagnosis.mostly_lost}."
    if 100 * idle < window:
        inside = (
            " What happens inside graphs was not recorded." if diagnosis.total("opaque_ns") else ""
        )
        return (
            f"{percent(busy, window)} % busy: nothing to gain here. Busy means that something "
            f"is resident, never that the device is well used.{inside}"
        )
    most = f"{_largest(diagnosis)}{_inflated(diagnosis)}."
    devices = len(diagnosis.devices)
    over = f" over {devices} devices" if devices > 1 else ""
    steps = diagnosis.steps
    waits = steps.parts_ns.sum(axis=1)
    median = steps.median(waits - steps.parts_ns[:, Part.UNKNOWN])
    step = steps.median(steps.busy_ns + waits)
    if median is None or step is None:
        return f"Idle {span(idle)}{over} ({percent(idle, window)} % of the window){most}"
    return f"Idle {us(median)} us a step{over} ({percent(median, step)} %){most}"


def _inflated(diagnosis: Diagnosis) -> str:
    """How much of the idle time the profiler, or the stand-in for a GPU, may have made itself."""
    per_step = bool(diagnosis.steps.counted().any())
    ns = sum(
        (f.exposed_idle_ns_per_step or 0) if per_step else f.exposed_idle_ns
        for f in diagnosis.findings
        if not f.ranked
    )
    if ns and not diagnosis.meta.lengthens_graphs:
        return f"; {us(ns)} us of it is {OF_STREAM_THREAD}"
    return f"; up to {us(ns)} us of it may be the profiler's own" if ns else ""


def _largest(diagnosis: Diagnosis) -> str:
    """The one or two parts that are each over a quarter of the idle time."""
    steps = diagnosis.steps
    parts = {p: steps.median(steps.parts_ns[:, p]) for p in Part if p is not Part.UNKNOWN}
    sizes = {p: ns for p, ns in parts.items() if ns is not None}
    if not sizes:
        sizes = {p: ns for p, ns in diagnosis.parts_ns().items() if p is not Part.UNKNOWN}
    ordered = sorted(sizes, key=lambda p: -sizes[p])
    most = [p.label for p in ordered[:2] if 4 * sizes[p] > sum(sizes.values())]
    return f", mainly {' and '.join(most)}" if most else ""
