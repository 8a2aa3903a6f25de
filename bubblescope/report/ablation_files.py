"""An Ablation for other programs and pages: JSON (docs/json.md), CSV and Markdown."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec

from bubblescope.ablate.ablation import Ablation, Change, Row
from bubblescope.report.ablation import interval, percent, plan
from bubblescope.report.units import rate, us
from bubblescope.report.words import clean

VERSION = 1


class CheckedJson(msgspec.Struct, frozen=True):
    """What one gate said."""

    gate: str
    verdict: str
    detail: str


class ChangeJson(msgspec.Struct, frozen=True):
    """A time over its reference's, less 1."""

    against: str
    change: float
    interval: tuple[float, float] | None
    noise: float | None
    verdict: str
    predicted: float | None
    why_not: str


class RowJson(msgspec.Struct, frozen=True):
    """One row of the ladder."""

    label: str
    passes: list[str]
    starts: int
    rounds: int
    throttled: int | None
    step_ns: int
    interval_ns: tuple[int, int] | None
    p99_ns: int
    tokens_per_step: float
    tpot_ns: int
    tpot_interval_ns: tuple[int, int] | None
    tokens_per_s: float
    change: ChangeJson | None
    predicted_ns: int | None
    recorded_step_ns: int | None
    idle_ns: int | None
    reads: float | None
    launches: float | None
    floor_share: float | None
    gate: str
    gates: list[CheckedJson]


class PlanJson(msgspec.Struct, frozen=True):
    """How often what was measured. processes: started for each start of the plan."""

    ladder: str
    starts: int
    rounds: int
    steps: int
    warm_up: int
    processes: int


class AblationJson(msgspec.Struct, frozen=True):
    """The whole: `msgspec.json.decode(text, type=AblationJson)` reads it back typed."""

    version: int
    target: str
    about: dict[str, str]
    versions: dict[str, str]
    plan: PlanJson
    parts: int
    compared: str
    floor_ns: int | None
    rows: list[RowJson]
    total: ChangeJson | None
    notes: list[str]


def to_json(ablation: Ablation) -> bytes:
    """The ablation as UTF-8 JSON, indented, with a newline at its end."""
    planned = ablation.plan
    told = AblationJson(
        version=VERSION,
        target=ablation.target,
        about=ablation.about,
        versions=ablation.versions,
        plan=PlanJson(
            planned.ladder,
            planned.starts,
            planned.rounds,
            planned.steps,
            planned.warm_up,
            len(planned.groups),
        ),
        parts=ablation.parts,
        compared=ablation.compared,
        floor_ns=ablation.floor_ns,
        rows=[_row(row) for row in ablation.rows],
        total=_change(ablation.total),
        notes=list(ablation.notes),
    )
    return msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"


def _row(row: Row) -> RowJson:
    window = row.window
    return RowJson(
        label=row.label,
        passes=list(row.passes),
        starts=row.starts,
        rounds=row.rounds,
        throttled=row.throttled,
        step_ns=row.step_ns,
        interval_ns=row.interval_ns,
        p99_ns=row.p99_ns,
        tokens_per_step=_ratio(row.tokens_per_step),
        tpot_ns=row.tpot_ns,
        tpot_interval_ns=row.tpot_interval_ns,
        tokens_per_s=round(row.tokens_per_s, 1),
        change=_change(row.change),
        predicted_ns=row.predicted_ns,
        recorded_step_ns=window.step_ns if window else None,
        idle_ns=window.idle_ns if window else None,
        reads=_maybe(window.reads) if window else None,
        launches=_maybe(window.launches) if window else None,
        floor_share=_maybe(row.floor_share),
        gate=row.gate,
        gates=[CheckedJson(c.gate, c.verdict, c.detail) for c in row.checked],
    )


def _change(change: Change | None) -> ChangeJson | None:
    if change is None:
        return None
    found = change.interval
    return ChangeJson(
        against=change.against,
        change=_ratio(change.change),
        interval=None if found is None else (_ratio(found.low), _ratio(found.high)),
        noise=_maybe(change.noise),
        verdict=change.verdict,
        predicted=_maybe(change.predicted),
        why_not=change.why_not,
    )


def to_csv(ablation: Ablation) -> str:
    """One line a row, times in ns, shares and changes as ratios, nothing where nothing is known."""
    lines = [_line(row) for row in ablation.rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def _line(row: Row) -> dict[str, Any]:
    told = msgspec.structs.asdict(_row(row))
    change = told.pop("change")
    step, tpot = told.pop("interval_ns"), told.pop("tpot_interval_ns")
    told.pop("gates")
    line: dict[str, Any] = {**told, "passes": " ".join(row.passes)}
    for name, pair in (("step", step), ("tpot", tpot)):
        line[f"{name}_low_ns"], line[f"{name}_high_ns"] = pair or (None, None)
    between = change.interval if change else None
    line["against"] = change.against if change else None
    line["change"] = change.change if change else None
    line["change_low"], line["change_high"] = between or (None, None)
    line["noise"] = change.noise if change else None
    line["verdict"] = change.verdict if change else None
    line["predicted"] = change.predicted if change else None
    return line


def to_markdown(ablation: Ablation) -> str:
    """A table for a page or a pull request, and what it rests on."""
    heads = [
        "pass",
        "step us",
        "95 %",
        "p99 us",
        "TPOT us",
        "95 %",
        "tok/s",
        f"change of {ablation.compared} %",
        "95 %",
        "",
        "predicted %",
        "idle us",
        "reads",
        "launches",
        "floor",
        "gate",
    ]
    facts = [f"{key}: {ablation.about[key]}" for key in sorted(ablation.about)]
    rows = [_cells(row) for row in ablation.rows]
    if ablation.total is not None:
        rows.append(
            [ablation.total_label, *[""] * 6, *_changed(ablation.total), "", "", "", "", ""]
        )
    lines = [
        f"Target {ablation.target}: {plan(ablation.plan)}.",
        "",
        *(f"- {clean(text)}" for text in [*facts, *ablation.notes]),
        "",
        _joined(heads),
        _joined(["---", *["---:"] * 8, "---", *["---:"] * 5, "---"]),
        *map(_joined, rows),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    window, step, tpot = row.window, row.interval_ns, row.tpot_interval_ns
    return [
        row.label,
        us(row.step_ns),
        f"{us(step[0])} to {us(step[1])}" if step else "-",
        us(row.p99_ns),
        us(row.tpot_ns),
        f"{us(tpot[0])} to {us(tpot[1])}" if tpot else "-",
        f"{row.tokens_per_s:,.0f}",
        *(_changed(row.change) if row.change else ("", "", "", "")),
        us(window.idle_ns) if window and window.idle_ns is not None else "-",
        rate(window.reads) if window and window.reads is not None else "-",
        rate(window.launches) if window and window.launches is not None else "-",
        "-" if row.floor_share is None else f"{100 * row.floor_share:.0f} %",
        row.gate,
    ]


def _changed(change: Change) -> tuple[str, str, str, str]:
    return (
        percent(change.change),
        interval(change.interval),
        change.verdict,
        percent(change.predicted),
    )


def _joined(cells: list[str]) -> str:
    return "| " + " | ".join(clean(cell).replace("|", "\\|") for cell in cells) + " |"


def _ratio(value: float) -> float:
    return round(value, 5)


def _maybe(value: float | None) -> float | None:
    return None if value is None else _ratio(value)
