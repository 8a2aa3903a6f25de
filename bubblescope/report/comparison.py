"""What `bubblescope compare` prints: what changed, in a sentence each, then the tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from bubblescope.compare.model import (
    Change,
    Comparison,
    DeviceWork,
    Figure,
    FindingChange,
    ReadChange,
    Side,
    State,
    Verdict,
)
from bubblescope.diagnose.model import Finding, Part, ReadSite
from bubblescope.report.page import Column, Page
from bubblescope.report.palette import BUSY, kind
from bubblescope.report.units import count, percent, rate, us
from bubblescope.report.words import clean, middle, source_line

_LABELS = 4
_NAMED = 3
"""So many families that differ are named in the summary."""


def render(comparison: Comparison, console: Console, *, top: int = 10) -> None:
    """Print the comparison on `console`, at most `top` rows a table."""
    page = Page(console)
    for label, side in (("A", comparison.a), ("B", comparison.b)):
        _side(label, side, page)
    for note in comparison.notes:
        page.prose(clean(note), indent=8, first="! doubt", style="bold yellow")
    page.put()
    for number, sentence in enumerate(summary(comparison)):
        page.prose(sentence, style="" if number else "bold")
    _where(comparison, page)
    _reads(comparison.reads, page, top)
    _kinds(comparison, page)
    _changed("Kernel families", comparison.families, page, top)
    _changed("CUDA calls", comparison.calls, page, top)
    _changed("Framework ops", comparison.ops, page, top)
    _findings(comparison.findings, page, top)


def summary(comparison: Comparison) -> list[str]:
    """What changed, a sentence each: the step, reads gone and new, counts, device work."""
    said = [_step(comparison.step)]
    for change in comparison.reads:
        if change.a is not None and change.b is None:
            said.append(f"Gone: {_of_read(change.a)}.")
        elif change.b is not None and change.a is None:
            said.append(f"New: {_of_read(change.b)}.")
    return [*said, _counts(comparison), _work(comparison.device_work)]


def _side(label: str, side: Side, page: Page) -> None:
    source = middle(clean(side.source), page.width - _LABELS, page.ellipsis)
    page.prose(source or "a recording", indent=_LABELS, first=label)
    how = clean(side.capture) or "how it was recorded is not stated"
    if side.level:
        how += f", {clean(side.level)} level"
    steps = count(side.steps, "step") if side.steps else "no steps"
    plain = side.unprofiled_step_ns
    without = f", {us(plain)} us a step without any profiler" if plain is not None else ""
    lines = [clean(side.run), f"{how}; {steps} counted{without}"]
    for line in filter(None, lines):
        page.prose(line, indent=_LABELS, style="dim")


def _step(step: Figure) -> str:
    if step.a is None or step.b is None or step.difference is None:
        return "Steps were not found on both sides: only what is in all is compared."
    values = f"{us(step.a)} to {us(step.b)} us"
    way = "longer" if step.difference > 0 else "shorter"
    by = f"{us(abs(step.difference))} us ({percent(abs(step.difference), step.a)} %) {way}"
    if step.spread is None:
        return f"B's step is {by}: {values}; the spread between steps is not known."
    if step.beyond:
        return f"B's step is {by}: {values}, beyond the {us(step.spread)} us between steps."
    return (
        f"The step is the same within the {us(step.spread)} us between steps: {us(step.a)} us in "
        f"A, {us(step.b)} us in B."
    )


def _of_read(read: ReadSite) -> str:
    """As in "cudaStreamSynchronize in scheduler.run_batch, 1.0 a step, and the 829 us ..."."""
    place = f"{clean(read.name)} {_place(read)}".rstrip()
    if read.calls_per_step is None:
        calls, exposed, each = count(read.calls, "call"), read.exposed_idle_ns, "in all"
    else:
        calls, exposed, each = (
            f"{rate(read.calls_per_step)} a step",
            read.exposed_idle_ns_per_step or 0,
            "a step",
        )
    if exposed:
        return f"{place}, {calls}, and the {us(exposed)} us {each} of idle that it exposed"
    if read.exposed_idle_ns:
        return f"{place}, {calls}, and the {us(read.exposed_idle_ns)} us in all of idle"
    return f"{place}, {calls}, which exposed no idle"


def _place(read: ReadSite) -> str:
    if read.site is not None:
        return f"at {source_line(read.site)}"
    return f"in {clean(read.under)}" if read.under else ""


def _counts(comparison: Comparison) -> str:
    """Copies, launches and framework ops, in all."""
    more = [
        (_sum(c.in_all for c in comparison.kinds if c.group == "copy"), "copy", "copies"),
        (_sum(c.in_all for c in comparison.calls if c.group == "launch"), "launch", "launches"),
        (_sum(c.in_all for c in comparison.ops), "framework op", "framework ops"),
    ]
    said = [
        f"{_list([count(abs(n), one, many) for n, one, many in more if sign * n > 0])} {way}"
        for sign, way in ((-1, "fewer"), (1, "more"))
        if any(sign * n > 0 for n, _, _ in more)
    ]
    return (
        f"In all {' and '.join(said)}."
        if said
        else ("As many copies, launches and framework ops in all.")
    )


def _sum(numbers: Iterable[int]) -> int:
    return sum(numbers)


def _list(words: Sequence[str]) -> str:
    """As in "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _work(work: DeviceWork) -> str:
    if work.verdict is Verdict.NOT_KNOWN:
        return f"Whether the device did the same work is not known: {clean(work.why)}."
    if work.verdict is Verdict.UNCHANGED:
        return (
            "Device work unchanged: every family of operations runs as often a step, and busy "
            "time differs by no more than between steps."
        )
    named = [
        f"{clean(c.name)} {(c.count.a or 0):,} to {(c.count.b or 0):,}"
        for c in work.differing[:_NAMED]
    ]
    if len(work.differing) > _NAMED:
        named.append(f"{len(work.differing) - _NAMED:,} more")
    which = f"{count(len(work.differing), 'family', 'families')} of operations"
    listed = f"{_list(named)}" if named else ""
    if work.verdict is Verdict.NEARLY:
        return (
            f"Device work unchanged but for {which}, {us(work.differing_ns)} us a step together "
            f"({listed}); busy time differs by no more than between steps."
        )
    if not work.differing:
        return (
            "Device work changed: every family of operations runs as often a step, but busy time "
            "differs by more than between steps."
        )
    return f"Device work changed: {which}, {us(work.differing_ns)} us a step together ({listed})."


def _where(comparison: Comparison, page: Page) -> None:
    """Print the step, busy and each part, medians a step."""
    if comparison.step.a is None or comparison.step.b is None:
        return
    page.heading("Where a step goes", "us a step, medians; % is of A's step")
    parts = sorted(
        (p for p in Part if (comparison.parts[p].a or comparison.parts[p].b)),
        key=lambda p: -max(comparison.parts[p].a or 0, comparison.parts[p].b or 0),
    )
    rows = [(BUSY.label, comparison.busy, BUSY.colour)]
    rows += [(p.label, comparison.parts[p], kind(p.label).colour) for p in parts]
    rows += [("idle", comparison.idle, ""), ("step", comparison.step, "")]
    if comparison.overlapped.a or comparison.overlapped.b:
        rows.append(("overlapping", comparison.overlapped, "dim"))
    whole = comparison.step.a
    page.table(
        (
            Column(),
            Column("A", right=True),
            Column("B", right=True),
            Column("difference", right=True),
            Column("%", right=True, drop=2),
            Column(drop=1),
        ),
        [
            [
                Text(label, style),
                us(figure.a or 0),
                us(figure.b or 0),
                _signed(figure.difference),
                _signed_percent(figure.difference, whole),
                Text(_within(figure), "dim"),
            ]
            for label, figure, style in rows
        ],
    )


def _within(figure: Figure) -> str:
    """Why a difference says nothing."""
    if figure.withheld:
        return "not compared"
    if figure.difference and figure.beyond is False:
        return f"within the {us(figure.spread or 0)} us between steps"
    return ""


def _reads(changes: Sequence[ReadChange], page: Page, top: int) -> None:
    if not changes:
        page.heading("Blocking reads", "none in either")
        return
    per_step = all(
        r.calls_per_step is not None for c in changes for r in (c.a, c.b) if r is not None
    )
    page.heading("Blocking reads", "us a step, medians" if per_step else "us in all")

    def cells(read: ReadSite | None) -> tuple[str, str, str]:
        if read is None:
            return "0", "0", "0"
        if not per_step:
            return f"{read.calls:,}", us(read.blocked_ns), us(read.exposed_idle_ns)
        return (
            rate(read.calls_per_step or 0.0),
            us(read.blocked_ns_per_step or 0),
            us(read.exposed_idle_ns_per_step or 0),
        )

    rows, places = [], []
    for change in changes[:top]:
        read = change.a or change.b
        assert read is not None  # one of the two is there
        state = "" if change.a and change.b else ("gone" if change.a else "new")
        pairs = zip(cells(change.a), cells(change.b), strict=True)
        rows.append([clean(read.name), *(c for pair in pairs for c in pair), state])
        places.append(middle(_place(read), page.width - 4, page.ellipsis))
    heads = ("calls A", "B", "blocked A", "B", "exposes A", "B")
    columns = [Column(head, right=True) for head in heads]
    page.table((Column(shrink=21), *columns, Column(drop=1)), rows, below=places)
    _more(page, len(changes) - top)


def _kinds(comparison: Comparison, page: Page) -> None:
    if not comparison.kinds:
        return
    page.heading("Device operations by kind", "in all, and medians a step")
    _changes(sorted(comparison.kinds, key=lambda c: -c.count_a), page)


def _changed(title: str, changes: Sequence[Change], page: Page, top: int) -> None:
    """Print what appeared, vanished or changed; the rest is counted."""
    found = [c for c in changes if c.state is not State.SAME]
    if not changes:
        return
    same = len(changes) - len(found)
    if not found:
        page.heading(title, f"{same:,} as they were")
        return
    page.heading(f"{title} that changed", f"{same:,} others as they were" if same else "")
    _changes(found[:top], page)
    _more(page, len(found) - top)


def _changes(changes: Sequence[Change], page: Page) -> None:
    timed = any(c.ns is not None for c in changes)
    page.table(
        (
            Column(shrink=24),
            Column("in all A", right=True, drop=1),
            Column("B", right=True, drop=1),
            Column("difference", right=True),
            Column("a step A", right=True),
            Column("B", right=True),
            Column("us a step A" if timed else "", right=True, drop=3),
            Column("B" if timed else "", right=True, drop=3),
            Column(drop=2),
        ),
        [
            [
                clean(c.name),
                f"{c.count_a:,}",
                f"{c.count_b:,}",
                f"{c.in_all:+,}" if c.in_all else "0",
                _known(c.count.a),
                _known(c.count.b),
                us(c.ns.a) if c.ns is not None and c.ns.a is not None else "",
                us(c.ns.b) if c.ns is not None and c.ns.b is not None else "",
                "" if c.state in (State.SAME, State.CHANGED) else str(c.state),
            ]
            for c in changes
        ],
    )


def _findings(changes: Sequence[FindingChange], page: Page, top: int) -> None:
    """Print the findings gone and new."""
    gone = [c.a for c in changes if c.a is not None and c.b is None]
    new = [c.b for c in changes if c.b is not None and c.a is None]
    both = len(changes) - len(gone) - len(new)
    page.heading("Findings", f"{len(gone):,} gone, {len(new):,} new, {both:,} in both")
    for label, found in (("gone", gone), ("new", new)):
        for finding in found[:top]:
            page.prose(f"{clean(finding.title)}: {_price(finding)}", indent=7, first=f"  {label}")
        _more(page, len(found) - top)


def _price(finding: Finding) -> str:
    each = finding.exposed_idle_ns_per_step
    return f"{us(finding.exposed_idle_ns)} us in all" if not each else f"{us(each)} us a step"


def _known(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _signed(ns: int | None) -> str:
    if ns is None:
        return ""
    return f"+{us(ns)}" if ns > 0 else us(ns)


def _signed_percent(ns: int | None, whole: int) -> str:
    if ns is None:
        return ""
    share = percent(abs(ns), whole)
    sign = "-" if ns < 0 else "+" if ns else ""
    return share if share.startswith("<") else f"{sign}{share}"


def _more(page: Page, left_out: int) -> None:
    if left_out > 0:
        page.put(Text(f"{page.ellipsis} and {count(left_out, 'more', 'more')}", "dim"), 2)
