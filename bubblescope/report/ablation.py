"""An Ablation as text: what ran, what a step takes, and what each pass changes."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from bubblescope.ablate.ablation import Ablation, Change, Row, Verdict
from bubblescope.ablate.plan import Plan
from bubblescope.ablate.statistics import Interval
from bubblescope.report.page import Column, Page
from bubblescope.report.units import count, rate, span, us
from bubblescope.report.words import clean

_LABELS = 12
_LABEL = Column("pass", shrink=16)
_AGAINST = {
    "cumulative": "each added to those above, against the row above",
    "alone": "each alone, against none",
    "leave-one-out": "all against none, the others against all",
}
_STYLES = {
    Verdict.FASTER: "bold",
    Verdict.SLOWER: "bold",
    Verdict.FAILED: "bold red",
    Verdict.NOISE: "dim",
    Verdict.NO_INTERVAL: "dim",
}


def plan(planned: Plan) -> str:
    """How often what is measured, in one line."""
    sides = count(planned.starts, "start")
    turns = (
        "rows alternate round by round within a start"
        if len(planned.groups) == 1
        else f"rows in {len(planned.groups)} processes a start, in alternating order"
    )
    return (
        f"{count(len(planned.rungs), 'row')}, {sides} a side, {count(planned.rounds, 'round')} of "
        f"{count(planned.steps, 'step')} in each ({planned.warm_up} before them not timed); {turns}"
    )


def render(ablation: Ablation, console: Console) -> None:
    """Print the report on `console`."""
    page = Page(console)
    page.put(f"ablation of target {clean(ablation.target)}")
    for label, text in (
        *((key, ablation.about.get(key, "")) for key in ("model", "shard", "weights")),
        ("acceptance", ablation.about.get("acceptance", "")),
        ("device", ablation.about.get("device", "")),
        ("plan", plan(ablation.plan)),
        ("floor", f"{span(ablation.floor_ns)} a step" if ablation.floor_ns is not None else ""),
    ):
        if text:
            page.prose(clean(text), indent=_LABELS, first=label)
    for note in ablation.notes:
        page.prose(clean(note), indent=_LABELS, first="note")
    _times(ablation, page)
    _changes(ablation, page)
    _reasons(ablation, page)


def _times(ablation: Ablation, page: Page) -> None:
    rounds = count(ablation.rows[0].rounds, "round")
    page.heading("Step time", f"us, median of {rounds} and its 95 % interval; p99 of single steps")
    page.table(
        (
            _LABEL,
            Column("step", right=True),
            Column("95 %", right=True),
            Column("p99", right=True, drop=3),
            Column("TPOT", right=True),
            Column("95 %", right=True, drop=2),
            Column("tok/s", right=True, drop=4),
            Column("tokens a step", right=True, drop=5),
        ),
        [
            (
                clean(row.label),
                us(row.step_ns),
                _span(row.interval_ns),
                us(row.p99_ns),
                us(row.tpot_ns),
                _span(row.tpot_interval_ns),
                f"{row.tokens_per_s:,.0f}",
                f"{row.tokens_per_step:.2f}",
            )
            for row in ablation.rows
        ],
    )


def _changes(ablation: Ablation, page: Page) -> None:
    page.heading(
        "What changes",
        f"{ablation.compared} in %, {_AGAINST[ablation.plan.ladder]}; idle in us a step",
    )
    rows = [_change(row.label, row.change, row) for row in ablation.rows]
    if ablation.total is not None:
        rows.append(_change(ablation.total_label, ablation.total, None))
    page.table(
        (
            _LABEL,
            Column("change", right=True),
            Column("95 %", right=True),
            Column("", drop=1),
            Column("predicted", right=True),
            Column("idle", right=True, drop=4),
            Column("reads", right=True, drop=5),
            Column("launches", right=True, drop=6),
            Column("floor", right=True, drop=7),
            Column("gate"),
        ),
        rows,
    )


def _change(label: str, change: Change | None, row: Row | None) -> tuple[Text | str, ...]:
    said: tuple[Text | str, ...] = ("", "", "", "")
    if change is not None:
        said = (
            percent(change.change),
            interval(change.interval),
            Text(change.verdict, _STYLES[change.verdict]),
            percent(change.predicted),
        )
    if row is None:
        return clean(label), *said, "", "", "", "", ""
    window = row.window
    return (
        clean(label),
        *said,
        "-" if window is None or window.idle_ns is None else us(window.idle_ns),
        "-" if window is None or window.reads is None else rate(window.reads),
        "-" if window is None or window.launches is None else rate(window.launches),
        "" if row.floor_share is None else f"{100 * row.floor_share:.0f} %",
        Text(row.gate, _STYLES[Verdict.FAILED] if row.gate == "failed" else ""),
    )


def _reasons(ablation: Ablation, page: Page) -> None:
    """What the tables have no room for: what failed or was not tested, why nothing is predicted."""
    said = []
    for row in ablation.rows:
        said += [
            (f"gate {c.gate} {c.verdict}, {row.label}: {c.detail}", c.verdict == "failed")
            for c in row.checked
            if c.verdict != "passed"
        ]
        if row.change is not None and row.change.why_not:
            said.append((f"nothing predicted, {row.label}: {row.change.why_not}", False))
    own = [r.change.noise for r in ablation.rows if r.change and r.change.noise is not None]
    if own:
        said.append(
            (f"noise: the baseline against itself shows up to {100 * max(own):.1f} %", False)
        )
    if said:
        page.put()
    for text, bad in said:
        page.prose(clean(text), indent=2, style="bold red" if bad else "")


def percent(change: float | None) -> str:
    """A change in per cent with its sign, "-" for none."""
    return "-" if change is None else f"{100 * change:+.1f}"


def interval(found: Interval | None) -> str:
    """Both ends of a change's interval, "-" for none."""
    return "-" if found is None else f"{percent(found.low)} to {percent(found.high)}"


def _span(found: tuple[int, int] | None) -> str:
    return "-" if found is None else f"{us(found[0])} to {us(found[1])}"
