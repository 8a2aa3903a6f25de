"""What `bubblescope predict` prints: the step before and after, and where the time went."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from bubblescope.diagnose.model import Diagnosis, Part
from bubblescope.predict.model import PathRow, Prediction, Slack
from bubblescope.report.header import header
from bubblescope.report.page import Column, Page
from bubblescope.report.palette import BUSY, kind
from bubblescope.report.units import count, percent, us
from bubblescope.report.words import clean, middle

_NAME = 44
"""Cells that a name on the critical path may take."""


def render(prediction: Prediction, console: Console, *, top: int = 10) -> None:
    """Print the prediction on `console`, at most `top` rows of the critical path."""
    page = Page(console)
    header(prediction.before, page, top)
    page.put()
    for number, sentence in enumerate(summary(prediction)):
        page.prose(clean(sentence), style="" if number else "bold")
    if prediction.what_ifs and prediction.after is not None:
        _where(prediction.before, prediction.after, page)
    _path(prediction, page, top)
    _slack(prediction, page)


def summary(prediction: Prediction) -> list[str]:
    """The outcome, a sentence each: the step, what it rests on, what was concluded."""
    changes = " and ".join(prediction.what_ifs)
    step, replayed = prediction.step_ns, prediction.replayed_ns
    if prediction.withheld:
        said = [f"Not predicted: {prediction.withheld}."]
        if step is not None:
            said.append(f"The step takes {us(step)} us as recorded.")
        return said + _rests_on(prediction)
    predicted, saving = prediction.predicted_ns or 0, prediction.saving_ns or 0
    first = f"The step takes {us(step or 0)} us."
    if changes:
        way = "shorter" if saving > 0 else "longer"
        by = f"{us(abs(saving))} us ({percent(abs(saving), replayed or 0)} %) {way}"
        instead = f"{us(predicted)} us instead of {us(step or 0)}"
        first = f"With {changes} the step takes {instead}: {by if saving else 'no shorter'}."
    steps = count(len(prediction.number), "step")
    off = abs((replayed or 0) - (step or 0))
    exact = "as recorded" if off == 0 else f"{us(off)} us off what was recorded"
    check = f"Replayed unchanged it comes out {exact}; medians over {steps}."
    return [first, check, *_rests_on(prediction)]


def _rests_on(prediction: Prediction) -> list[str]:
    said: list[str] = []
    found = prediction.inferred
    concluded = [
        count(number, one, many)
        for number, one, many in (
            (found.stream_waits, "wait for another stream", "waits for another stream"),
            (found.reads, "wait of a read", "waits of reads"),
        )
        if number
    ]
    if concluded:
        said.append(f"Not recorded, concluded from times: {', '.join(concluded)}.")
    if found.fixed:
        reads = count(found.fixed, "blocking read")
        said.append(f"What {reads} waited for is not known: their length is kept.")
    if prediction.assumed:
        said.append(f"Assumed: {'; '.join(prediction.assumed)}.")
    return said


def _where(before: Diagnosis, after: Diagnosis, page: Page) -> None:
    """Busy and each part of the bubbles, a step, before and after."""
    old, new = before.steps, after.steps
    if not old.counted().any() or not new.counted().any():
        return
    rows: list[list[Text | str]] = []
    labels = [(BUSY.label, old.median(old.busy_ns), new.median(new.busy_ns))]
    labels += [
        (p.label, old.median(old.parts_ns[:, p]), new.median(new.parts_ns[:, p])) for p in Part
    ]
    for label, was, is_ in labels:
        was, is_ = was or 0, is_ or 0
        if was or is_:
            rows.append(
                [
                    page.block(kind(label)).append(f" {label}", "not bold default"),
                    us(was),
                    us(is_),
                    _change(is_ - was),
                ]
            )
    page.heading("Where a step goes", "medians")
    page.table(
        (
            Column(),
            Column("before us", right=True),
            Column("after us", right=True),
            Column("change us", right=True),
        ),
        rows,
    )


def _path(prediction: Prediction, page: Page, top: int) -> None:
    """The critical path by kind, then by what it was in; both replays side by side."""
    if prediction.unchanged is None:
        return
    changed = prediction.changed if prediction.what_ifs else None
    old = prediction.unchanged.path
    new = changed.path if changed is not None else None
    page.heading("Critical path", "what must get shorter for the step to; means a step")
    kinds = _by_kind(old), _by_kind(new or ())
    heads = [Column(), Column("before us" if new is not None else "us", right=True)]
    if new is not None:
        heads.append(Column("after us", right=True))
    labels = sorted(
        {*kinds[0], *kinds[1]}, key=lambda k: (-max(kinds[0].get(k, 0), kinds[1].get(k, 0)), k)
    )
    page.table(
        heads,
        [
            [label, us(kinds[0].get(label, 0)), us(kinds[1].get(label, 0))][: len(heads)]
            for label in labels
        ],
    )
    page.put()
    places = _by_place(old), _by_place(new or ())
    keys = sorted(
        {*places[0], *places[1]},
        key=lambda k: (-max(places[0].get(k, 0), places[1].get(k, 0)), k),
    )
    named = [key for key in keys if key[1]][:top]
    page.table(
        [Column(), Column(shrink=12), *heads[1:]],
        [
            [
                key[0],
                middle(clean(key[1]), _NAME, page.ellipsis),
                us(places[0].get(key, 0)),
                us(places[1].get(key, 0)),
            ][: len(heads) + 1]
            for key in named
        ],
    )


def _by_kind(path: tuple[PathRow, ...]) -> dict[str, int]:
    total: dict[str, int] = {}
    for row in path:
        total[row.kind] = total.get(row.kind, 0) + row.ns_per_step
    return total


def _by_place(path: tuple[PathRow, ...]) -> dict[tuple[str, str], int]:
    return {(row.kind, row.name): row.ns_per_step for row in path}


def _slack(prediction: Prediction, page: Page) -> None:
    """Host and device alone, and how far ahead the host is and would have to be."""
    if prediction.unchanged is None:
        return
    page.heading("Slack", "the step less what each side takes alone; at 0 it decides")
    for label, replay in (
        ("before" if prediction.what_ifs else "", prediction.unchanged),
        ("after", prediction.changed if prediction.what_ifs else None),
    ):
        if replay is not None:
            page.prose(_said(replay.slack), indent=9 if label else 2, first=f"  {label}")


def _said(slack: Slack) -> str:
    text = (
        f"host {us(slack.host_ns)} us (alone it takes {us(slack.host_alone_ns)} a step), device "
        f"{us(slack.device_ns)} us (alone {us(slack.device_alone_ns)})."
    )
    if slack.run_ahead_ns is None or slack.run_ahead_needed_ns is None:
        return text
    return (
        f"{text} The host launches a step {us(slack.run_ahead_ns)} us before the device begins it; "
        f"with {us(slack.run_ahead_needed_ns)} no launch of the step would come late."
    )


def _change(ns: int) -> str:
    return f"+{us(ns)}" if ns > 0 else us(ns)
