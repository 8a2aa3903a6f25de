"""Who made the device wait: blocking reads, and what filled the host gaps."""

from __future__ import annotations

from rich.text import Text

from bubblescope.diagnose.model import Diagnosis, Filler, Part, ReadSite
from bubblescope.report.findings import numbers
from bubblescope.report.page import Column, Page
from bubblescope.report.palette import kind
from bubblescope.report.units import count, percent, rate, us
from bubblescope.report.words import chain, clean, frame, middle, source_line

_FIGURES = (
    Column("calls", right=True, drop=4),
    Column("blocked", right=True, drop=2),
    Column("exposes", right=True),
    Column("(in all)", right=True, drop=6),
    Column("idle after", right=True, drop=1),
    Column(right=True, drop=5),
)
_NO_LIMIT = 1_000
_LEAST_SHARE = 50  # fillers of less than a fiftieth of the host gaps are not worth a line


def reads(diagnosis: Diagnosis, page: Page, top: int) -> None:
    """Print the blocking reads, the most exposed first, with the number of their finding."""
    if not diagnosis.reads:
        page.heading("Blocking reads", "none in this recording")
        return
    per_step = bool(diagnosis.steps.counted().any())
    unit = "us a step, medians" if per_step else "us in all"
    page.heading("Blocking reads", f"{unit}; what they expose is part of the idle above")
    shown = diagnosis.reads[:top]
    numbered = numbers(diagnosis, top)
    rows = [_read(read, per_step, numbered) for read in shown]
    wide = [_place(read, diagnosis.marker, _NO_LIMIT, page) for read in shown]
    beside = [[row[0], at, *row[1:]] for row, at in zip(rows, wide, strict=True)]
    columns = (Column(), Column(), *_FIGURES)
    if page.fits(columns, beside):
        page.table(columns, beside)
    else:
        below = [_place(read, diagnosis.marker, page.width - 4, page) for read in shown]
        page.table((Column(shrink=21), *_FIGURES), rows, below=below)
    _more(page, len(diagnosis.reads) - len(shown))


def _read(
    read: ReadSite, per_step: bool, numbered: dict[tuple[object, ...], int]
) -> list[Text | str]:
    """The cells of one read but for its place."""
    style = kind(Part.READ_TAIL.label).colour if read.exposed_idle_ns else ""
    key = (read.name, read.site, read.within, read.exposed_idle_ns)
    finding = f"#{numbered[key]}" if key in numbered else ""
    name = Text(clean(read.name), style)
    if per_step:
        return [
            name,
            rate(read.calls_per_step or 0.0),
            us(read.blocked_ns_per_step or 0),
            us(read.exposed_idle_ns_per_step or 0),
            us(read.exposed_idle_ns),
            us(read.idle_after_ns_per_step or 0),
            finding,
        ]
    figures = (us(read.blocked_ns), us(read.exposed_idle_ns), "", us(read.idle_after_ns))
    return [name, f"{read.calls:,}", *figures, finding]


def _place(read: ReadSite, marker: str, width: int, page: Page) -> str:
    """Where the read is: its line, else the ranges around it that tell it from others."""
    if read.site is not None:
        return middle(source_line(read.site), width, page.ellipsis)
    names = list(read.within)
    if read.under in names:  # within it, only the framework's own ops
        names = names[: names.index(read.under) + 1]
    if len(names) > 1 and (names[0] == marker or names[0].startswith("ProfilerStep#")):
        del names[0]  # it encloses every step
    return chain(names, width, page.ellipsis)


def host_gaps(diagnosis: Diagnosis, page: Page, top: int) -> None:
    """Print what the launching threads did while the device was dry; nothing where it never was."""
    if not diagnosis.fillers:
        return
    total = diagnosis.parts_ns()[Part.HOST_GAP]
    per_step = bool(diagnosis.steps.counted().any())
    page.heading("What the host did in its gaps", "us a step, medians" if per_step else "us in all")
    shown = [f for f in diagnosis.fillers[:top] if _LEAST_SHARE * f.ns >= total]
    shown = shown or list(diagnosis.fillers[:1])
    page.table(
        (
            Column(drop=2),
            Column(shrink=30),
            Column("times", right=True, drop=3),
            Column("us", right=True),
            Column("(in all)" if per_step else "", right=True, drop=4),
            Column("% of host gap", right=True, drop=1),
        ),
        [_filler(filler, per_step, total) for filler in shown],
    )
    rest = sum(filler.ns for filler in diagnosis.fillers[len(shown) :])
    share = f", {percent(rest, total)} % together"
    _more(page, len(diagnosis.fillers) - len(shown), share)


def _filler(filler: Filler, per_step: bool, total: int) -> list[Text | str]:
    return [
        clean(filler.doing),
        frame(clean(filler.name)) + (f" in {clean(filler.under)}" if filler.under else ""),
        f"{filler.count:,}",
        us((filler.ns_per_step or 0) if per_step else filler.ns),
        us(filler.ns) if per_step else "",
        percent(filler.ns, total),
    ]


def _more(page: Page, left_out: int, said: str = "") -> None:
    """Say how many rows were left out."""
    if left_out > 0:
        text = f"{page.ellipsis} and {count(left_out, 'more', 'more')}{said}"
        page.put(Text(text, "dim"), 2)
