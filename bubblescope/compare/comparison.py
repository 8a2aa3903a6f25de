"""From two diagnosed recordings to a Comparison."""

from __future__ import annotations

from collections.abc import Callable

from bubblescope.compare import comparable, devicework, match, tally
from bubblescope.compare.model import Change, Comparison, Figure, Middle, Side
from bubblescope.compare.rows import place
from bubblescope.compare.run import Run
from bubblescope.compare.tally import Tallies
from bubblescope.diagnose.model import Part
from bubblescope.timeline.tables import Int


def compare(a: Run, b: Run) -> Comparison:
    """B against A: figures a step, everything counted by name, reads and findings.

    Args:
        a: before.
        b: after.
    """
    can = comparable.check(a, b)
    before, after = a.diagnosis.steps, b.diagnosis.steps

    def figure(of_a: Int, of_b: Int, *, idle: bool = True) -> Figure:
        return Figure.between(
            Middle.of(of_a[before.counted()]),
            Middle.of(of_b[after.counted()]),
            withheld=idle and not can.idle,
        )

    busy = figure(before.busy_ns, after.busy_ns)
    idle_a, idle_b = (
        steps.parts_ns.sum(axis=1) - steps.parts_ns[:, Part.UNKNOWN] for steps in (before, after)
    )
    rows = place(a), place(b)

    def changes(tallies: Callable[..., Tallies], *, time: bool = True) -> tuple[Change, ...]:
        return _changes(a, b, tallies(a, rows[0]), tallies(b, rows[1]), time=time)

    families = changes(tally.families) if can.operations else ()
    return Comparison(
        a=_side(a),
        b=_side(b),
        step=figure(before.length_ns, after.length_ns, idle=False),
        busy=busy,
        idle=figure(idle_a, idle_b),
        overlapped=figure(before.overlapped_ns, after.overlapped_ns, idle=False),
        parts={p: figure(before.parts_ns[:, p], after.parts_ns[:, p]) for p in Part},
        kinds=changes(tally.kinds) if can.operations else (),
        families=families,
        calls=changes(tally.calls),
        ops=changes(tally.framework_ops, time=False),
        reads=match.reads(a.diagnosis.reads, b.diagnosis.reads),
        findings=match.findings(a.diagnosis.findings, b.diagnosis.findings),
        device_work=devicework.judge(families, busy, can.why_not),
        notes=can.notes,
    )


def _side(run: Run) -> Side:
    diagnosis = run.diagnosis
    return Side(
        source=diagnosis.meta.source,
        run=diagnosis.meta.about.get("run", ""),
        capture=diagnosis.meta.capture,
        level=diagnosis.level,
        devices=tuple(d.name for d in diagnosis.devices),
        marker=diagnosis.marker,
        steps=int(diagnosis.steps.counted().sum()),
        window_ns=diagnosis.total("window_ns"),
        busy_ns=diagnosis.total("busy_ns"),
        idle_ns=diagnosis.total("idle_ns"),
        unknown_ns=diagnosis.total("unknown_ns"),
        unprofiled_step_ns=diagnosis.meta.unprofiled_step_ns,
    )


def _changes(a: Run, b: Run, before: Tallies, after: Tallies, *, time: bool) -> tuple[Change, ...]:
    """Every label of either side; what differs most first, by time, then by count."""
    none = [tally.nothing(int(run.diagnosis.steps.counted().sum())) for run in (a, b)]
    found = []
    for group, name in sorted(before.keys() | after.keys()):
        x, y = before.get((group, name), none[0]), after.get((group, name), none[1])
        count = Figure.between(x.count_per_step, y.count_per_step)
        ns = Figure.between(x.ns_per_step, y.ns_per_step)
        found.append(
            Change(group, name, x.count, y.count, count, x.ns, y.ns, ns)
            if time
            else Change(group, name, x.count, y.count, count)
        )
    return tuple(sorted(found, key=_weight))


def _weight(change: Change) -> tuple[int, int, int]:
    ns = change.ns.difference if change.ns is not None else None
    if ns is None:
        ns = (change.ns_b or 0) - (change.ns_a or 0)
    return -abs(ns), -abs(change.in_all), -max(change.count_a, change.count_b)
