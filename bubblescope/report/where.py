"""Where a step goes: busy and each part of the bubbles, then one step drawn to scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from bubblescope.diagnose.model import DeviceDiagnosis, Diagnosis, Part, Segment
from bubblescope.report.page import Column, Page
from bubblescope.report.palette import BUSY, KINDS, kind
from bubblescope.report.units import count, percent, us
from bubblescope.report.words import clean

MEANING = {
    Part.READ_TAIL: "work done, blocking read not returned",
    Part.HOST_GAP: "host has not begun the next launch",
    Part.HOST_WAIT: "launching thread waits for another",
    Part.LAUNCH_CALL: "the launch call is still running",
    Part.LAUNCH_LATENCY: "launch returned, work not begun",
    Part.STREAM_WAIT: "queued behind another stream's event",
    Part.DEVICE_GAP: "between operations already queued",
    Part.GRAPH_GAP: "inside one graph replay",
    Part.UNRESOLVED: "clocks disagree: cause not resolved",
    Part.UNKNOWN: "not recorded: neither idle nor busy",
}
_SCALE = 28  # cells that a whole step takes, on a page of 100


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    ns: int
    note: str
    meaning: str


def where(diagnosis: Diagnosis, page: Page) -> None:
    """Print the table, the totals under it, and the step."""
    steps = diagnosis.steps
    counted = int(steps.counted().sum())
    if counted:
        devices = len(diagnosis.devices)
        summed = f", summed over {devices} devices" if devices > 1 else ""
        over = f"medians over {counted:,} steps" if counted > 1 else "one step"
        page.heading("Where a step goes", f"{over}{summed}")
    else:
        page.heading("Where the time goes", "totals over the window")
    rows = _per_step(diagnosis) if counted else _in_total(diagnosis)
    whole = (
        steps.median(steps.busy_ns + steps.parts_ns.sum(axis=1))
        if counted
        else diagnosis.total("window_ns")
    )
    _draw(rows, whole or 0, page, "step" if counted else "window")
    if counted and whole != diagnosis.total("window_ns"):
        page.prose(_totals(diagnosis), indent=2, style="dim")
    for device in diagnosis.devices:
        if device.typical_step:
            step(device, page, len(diagnosis.devices) > 1)
            break


def _per_step(diagnosis: Diagnosis) -> list[_Row]:
    """Medians over the counted steps."""
    steps = diagnosis.steps
    parts = {p: steps.median(steps.parts_ns[:, p]) or 0 for p in Part}
    overlapped = steps.median(steps.overlapped_ns) or 0
    return _rows(diagnosis, steps.median(steps.busy_ns) or 0, overlapped, parts, True)


def _in_total(diagnosis: Diagnosis) -> list[_Row]:
    """Sums over the window."""
    return _rows(
        diagnosis,
        diagnosis.total("busy_ns"),
        diagnosis.total("overlapped_ns"),
        diagnosis.parts_ns(),
        False,
    )


def _rows(
    diagnosis: Diagnosis, busy: int, overlapped: int, parts: dict[Part, int], per_step: bool
) -> list[_Row]:
    """Busy first, then the parts by size; a part of nothing is left out."""
    notes = []
    if overlapped:
        notes.append(f"of it {us(overlapped)} us of kernels overlapping")
    opaque = diagnosis.total("opaque_ns")
    if opaque:
        share = percent(opaque, diagnosis.total("busy_ns"))
        notes.append(f"an upper bound: {share} % of it graph replays recorded whole")
    rows = [_Row(BUSY.label, busy, "; ".join(notes), "an operation is resident")]
    unknown = diagnosis.total("unknown_ns")
    for part in sorted(parts, key=lambda p: -parts[p]):
        if parts[part] or (part is Part.UNKNOWN and unknown):
            note = _only_at_node_level(diagnosis, part, per_step)
            if part is Part.UNKNOWN and not parts[part]:
                note = f"{us(unknown)} us in the window, outside these steps"
            rows.append(_Row(part.label, parts[part], note, MEANING[part]))
    return rows


def _only_at_node_level(diagnosis: Diagnosis, part: Part, per_step: bool) -> str:
    """How much of a part is a finding that does not count against the program."""
    for finding in diagnosis.findings:
        if finding.kind == part.label and finding.call and not finding.ranked:
            ns = finding.exposed_idle_ns_per_step if per_step else finding.exposed_idle_ns
            if ns:
                return f"{us(ns)} us in {clean(finding.call)}: node level only"
    return ""


def _draw(rows: list[_Row], whole: int, page: Page, last: str) -> None:
    """The table itself. What a part means is said where there is room for all of it."""
    scale = _SCALE if page.width >= 90 else page.width // 5
    bars = [page.bar(row.ns, whole, scale, kind(row.label)) for row in rows]
    figures = 2 + 14 + 2 + max(len(us(row.ns)) for row in rows) + 2 + 5 + 2
    room = page.width - figures - max(bar.cell_len for bar in bars) - 2
    roomy = room >= max((len(row.meaning) for row in rows if not row.note), default=0)
    table: list[list[Text | str]] = [
        [
            row.label,
            us(row.ns),
            percent(row.ns, whole),
            bar,
            Text(row.note) if row.note else Text(row.meaning if roomy else "", "dim"),
        ]
        for row, bar in zip(rows, bars, strict=True)
    ]
    share = percent(whole, whole)
    table.append([Text(last, "dim"), Text(us(whole), "dim"), Text(share, "dim"), Text(), Text()])
    page.table(
        (
            Column(),
            Column("us", right=True),
            Column("%", right=True),
            Column(drop=1),
            Column(wrap=True, shrink=24, drop=2),
        ),
        table,
    )


def _totals(diagnosis: Diagnosis) -> str:
    """The whole window in one sentence: what medians leave out is in here."""
    window, busy = diagnosis.total("window_ns"), diagnosis.total("busy_ns")
    said = [f"busy {us(busy)} us ({percent(busy, window)} %)"]
    parts = diagnosis.parts_ns()
    for part in sorted(parts, key=lambda p: -parts[p]):
        if parts[part]:
            said.append(f"{part.label} {us(parts[part])} ({percent(parts[part], window)} %)")
    operations = sum(d.operations for d in diagnosis.devices)
    return (
        f"All {us(window)} us of the window, {count(operations, 'device operation')}: "
        f"{', '.join(said)}."
    )


def devices(diagnosis: Diagnosis, page: Page) -> None:
    """Print one line a device; with one device there is nothing to add."""
    if len(diagnosis.devices) < 2:
        return
    page.heading("Devices", "figures above are sums over them")
    page.table(
        (
            Column("rank", right=True),
            Column("device", right=True),
            Column(shrink=8, drop=4),
            Column("window us", right=True),
            Column("busy %", right=True),
            Column("idle us", right=True),
            Column("unknown us", right=True, drop=2),
            Column("steps", right=True, drop=3),
            Column("step us", right=True, drop=1),
        ),
        [_device(device) for device in diagnosis.devices],
    )


def _device(device: DeviceDiagnosis) -> list[str]:
    steps = device.steps
    median = steps.median(steps.length_ns)
    return [
        str(device.rank),
        str(device.device),
        clean(device.name),
        us(device.window_ns),
        percent(device.busy_ns, device.window_ns),
        us(device.idle_ns),
        us(device.unknown_ns) if device.unknown_ns else "",
        f"{int(steps.whole.sum()):,}" if len(steps.whole) else "",
        "" if median is None else us(median),
    ]


def step(device: DeviceDiagnosis, page: Page, named: bool) -> None:
    """Print one typical step to scale, a cell the kind of time that it mostly is."""
    segments = device.typical_step
    length = segments[-1].end - segments[0].start
    title = "One step" if len(device.steps.start) else "The window"
    whose = f" of rank {device.rank}, device {device.device}" if named else ""
    page.heading(f"{title}{whose}", f"{us(length)} us, to scale")
    line = Text()
    for label in strip(segments, page.width - 4):
        line.append_text(page.block(kind(label)))
    page.put(line, 2)
    legend = Text()
    for label in sorted({s.kind for s in segments}, key=_order):
        entry = page.block(kind(label)).append(f" {clean(label)}", "not bold default")
        if legend.cell_len + entry.cell_len + 3 > page.width - 2 and legend:
            page.put(legend, 2)
            legend = Text()
        legend.append_text(entry).append("   ")
    page.put(legend, 2)


def _order(label: str) -> tuple[int, str]:
    """Kinds in the palette's order, then others by name."""
    known = list(KINDS)
    return (known.index(label) if label in known else len(known)), label


def strip(segments: Sequence[Segment], cells: int) -> list[str]:
    """The kind of time that each of `cells` equal stretches shows.

    A cell shows a kind that is in it. Which of several is decided by what each kind is still
    owed, so that many small gaps, each less than half a cell, show in their proportion.
    """
    begin, end = segments[0].start, segments[-1].end
    length = max(1, end - begin)
    owed: dict[str, int] = {}
    shown: list[str] = []
    index = 0
    for cell in range(cells):
        # Times are multiplied by `cells` instead of divided, so that cells tile exactly.
        left, right = length * cell, length * (cell + 1)
        inside: dict[str, int] = {}
        while index < len(segments):
            segment = segments[index]
            first, past = (segment.start - begin) * cells, (segment.end - begin) * cells
            overlap = min(past, right) - max(first, left)
            if overlap > 0:
                inside[segment.kind] = inside.get(segment.kind, 0) + overlap
            if past > right:
                break
            index += 1
        for name, ns in inside.items():
            owed[name] = owed.get(name, 0) + ns
        best = max(inside, key=lambda name: owed[name], default="unknown")
        owed[best] = owed.get(best, 0) - length
        shown.append(best)
    return shown
