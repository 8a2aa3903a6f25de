"""What `bubblescope kernels` prints: how far to trust the durations, then a row a kernel."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from bubblescope.kernels.model import Kernel, Kernels
from bubblescope.kernels.names import short
from bubblescope.report.header import header
from bubblescope.report.kernels_json import to_json
from bubblescope.report.page import Column, Page
from bubblescope.report.units import count, percent, rate, us
from bubblescope.report.words import clean

__all__ = ["render", "to_json"]

_LABELS = 10
_NAMED = 3  # names that no row has, told one by one


def render(table: Kernels, console: Console, *, top: int = 10) -> None:
    """Print the table.

    Args:
        table: What to tell.
        console: Where to. Its width, encoding and colours are followed.
        top: The most rows to print.
    """
    page = Page(console)
    header(table.diagnosis, page, top)
    for label, text in (
        ("durations", _durations(table)),
        ("nsight", _nsight(table)),
        ("dram", _dram(table)),
    ):
        if text:
            page.prose(text, indent=_LABELS, first=label)
    if doubt := _doubt(table):
        page.prose(doubt, indent=_LABELS, first="! doubt", style="bold yellow")
    page.put()
    page.prose(_headline(table), style="bold")
    _table(table, page, top)


def _durations(table: Kernels) -> str:
    level = table.diagnosis.level
    source = clean(table.durations)
    return f"{source}{'' if level in source or not level else f', {level} level'}"


def _nsight(table: Kernels) -> str:
    run = table.nsight
    if run is None:
        return ""
    tool = f"nsight-python {clean(run.version)}, CUPTI {clean(run.cupti)}"
    compared = [row for row in table.rows if row.nsight is not None]
    ours = sum(row.total_ns for row in compared)
    theirs = sum(row.nsight.mean_ns * row.calls for row in compared if row.nsight is not None)
    said = f"{tool}: {count(run.steps, 'step')} launched without graphs"
    if ours:
        said += f"; in all {_signed(theirs - ours, ours)} against the recording"
    if run.unseen_ns:
        said += f"; it did not see kernels of {us(run.unseen_ns)} us a step"
    if run.unmatched:
        said += f"; it saw {_some(run.unmatched)} which the recording has not"
    return said


def _dram(table: Kernels) -> str:
    run = table.dram
    if run is None:
        return ""
    said = (
        f"{clean(run.collector)}: {count(run.launches, 'launch', 'launches')}, one at a time, "
        "clocks and caches left as they were"
    )
    if run.unmatched:
        said += f"; no row of its own for {_some(run.unmatched)}"
    return said


def _some(names: tuple[str, ...]) -> str:
    told = ", ".join(short(clean(name)) for name in names[:_NAMED])
    return f"{told} and {len(names) - _NAMED} more" if len(names) > _NAMED else told


def _doubt(table: Kernels) -> str:
    if not table.opaque_ns:
        return ""
    return (
        f"{percent(table.opaque_ns, table.durations_ns)} % of all durations are graph replays "
        "recorded whole: the kernels in them are not seen; record at node level"
    )


def _headline(table: Kernels) -> str:
    """One sentence: how much is busy, with how many operations, and how their times add up."""
    steps = max(table.steps, 1)
    over = "a step in the mean" if table.steps else "in the window"
    said = (
        f"{count(table.operations // steps, 'operation')} {over}, "
        f"{us(table.durations_ns // steps)} us in all"
    )
    if table.overlapped_ns:
        said += f", {us(table.overlapped_ns // steps)} us of that side by side"
    share = percent(table.busy_ns, table.window_ns)
    whole = "step" if table.steps else "window"
    return f"{said}: busy {us(table.busy_ns // steps)} us ({share} % of the {whole})."


def _table(table: Kernels, page: Page, top: int) -> None:
    rows = table.rows[:top]
    noun = {"name": "Kernels, copies and sets", "family": "Families of kernels, copies and sets"}
    over = f"over {count(table.steps, 'step')}" if table.steps else "over the window"
    page.heading(noun[table.by], f"{over}, durations of a call in us")
    whole = "step" if table.steps else "window"
    columns = [
        Column("", shrink=30),
        Column("calls", right=True),
        Column("median", right=True),
        Column("p90", right=True, drop=3),
        Column("min", right=True, drop=5),
        Column("max", right=True, drop=4),
        Column("nsight", right=True, drop=2),
        Column("differs", right=True, drop=2),
        Column("GB/s", right=True, drop=1),
        Column("% peak", right=True, drop=1),
        Column("us/step" if table.steps else "us", right=True),
        Column(f"% {whole}", right=True),
        Column("% busy", right=True, drop=7),
        Column("in", drop=6),
    ]
    page.table(columns, [_row(row, table) for row in rows])
    left = table.rows[top:]
    if left:
        rest = sum(row.total_ns for row in left)
        page.prose(
            f"and {len(left)} more with {percent(rest, table.window_ns)} % of the {whole}: "
            "--top, --json",
            indent=2,
            style="dim",
        )


def _row(row: Kernel, table: Kernels) -> list[Text | str]:
    name = short(clean(row.name))
    if row.names > 1:
        name += f" ({row.names})"
    if row.kind == "graph":
        name += ", recorded whole"
    each = rate(row.calls_per_step) if row.calls_per_step is not None else f"{row.calls:,}"
    total = row.ns_per_step if row.ns_per_step is not None else row.total_ns
    return [
        name,
        each,
        _tenths(row.median_ns),
        _tenths(row.p90_ns),
        _tenths(row.min_ns),
        _tenths(row.max_ns),
        "" if row.nsight is None else _tenths(row.nsight.mean_ns),
        "" if row.nsight is None else _signed(row.nsight.mean_ns - row.mean_ns, row.mean_ns),
        "" if row.dram is None else f"{row.dram.bytes_per_second / 1e9:,.0f}",
        ""
        if row.dram is None or row.dram.percent_of_peak is None
        else f"{row.dram.percent_of_peak:.0f}",
        us(total),
        percent(row.total_ns, table.window_ns),
        percent(row.total_ns, table.busy_ns),
        row.where,
    ]


def _tenths(ns: int) -> str:
    """Microseconds with one decimal, so that durations compare down a column."""
    tenths = (ns + 50) // 100
    return f"{tenths // 10:,}.{tenths % 10}" if tenths or not ns else "<0.1"


def _signed(difference: int, whole: int) -> str:
    """As in "+1.2 %"."""
    return f"{100 * difference / whole:+.1f} %" if whole else "-"
