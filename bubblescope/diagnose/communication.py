"""Communication: hidden and exposed, waiting told from work, and who comes late."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose import collectives, meetings
from bubblescope.diagnose.bubbles import DeviceSpan, Gaps
from bubblescope.diagnose.collectives import Collective
from bubblescope.diagnose.exchange import (
    Activity,
    CollectiveKind,
    Communication,
    Exchange,
    Lateness,
)
from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.meetings import Meetings
from bubblescope.diagnose.model import Doing, Part, Pieces, StepTable, median_ns
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import covered_before, union
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """One device as the rules left it. inside: its window; steps, pieces: those in it."""

    span: DeviceSpan
    gaps: Gaps
    pieces: Pieces
    steps: StepTable
    inside: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Busy, hidden, exposed, waiting, exposed waiting: in all (5,), and of each step (5, steps)."""

    total: Int
    each: Int


def find(
    timeline: Timeline,
    launches: Launches,
    threads: Threads,
    places: list[Place],
    steps: StepTable,
) -> Communication | None:
    """What is known of the communication in each device's window; None where there is none.

    steps: those of all devices together, over which the medians of sums are taken.
    """
    ops = timeline.device_ops
    rows, kind = collectives.find(timeline, launches, threads)
    if not len(rows):
        return None
    stops = np.array([p.span.stop for p in places])
    device = np.searchsorted(stops, rows, "right")
    window = np.array([p.inside for p in places])
    inside = (ops.start[rows] >= window[device, 0]) & (ops.end[rows] <= window[device, 1])
    rows, kind, device = rows[inside], kind[inside], device[inside]
    if not len(rows):
        return None
    met = meetings.find(ops, rows, kind, device, len(places))
    begun = _begun(timeline, met)
    matched = len(met.member) > 0
    sums = [_sums(timeline, p, rows[device == d], begun) for d, p in enumerate(places)]
    counts = np.bincount(device, minlength=len(places)).tolist()
    each = [
        _exchange(n, s, p.steps, s.each, matched)
        for n, s, p in zip(counts, sums, places, strict=True)
    ]
    total = _Sums(np.sum([s.total for s in sums], axis=0), _together(sums, places, steps))
    return Communication(
        total=_exchange(len(rows), total, steps, total.each, matched),
        devices=tuple(each),
        kinds=_kinds(timeline, rows, kind, begun, matched),
        late=_late(timeline, places, met),
        note=_note(timeline, places, met),
    )


def _begun(timeline: Timeline, met: Meetings) -> Int:
    """When each operation had all ranks, on its own clock; its start where that is not known."""
    ops = timeline.device_ops
    begun = ops.start.copy()
    if len(met.member):
        last, _, _ = met.arrivals(ops)
        known = met.member >= 0
        at = met.member[known]
        own = (last[:, None] - met.shift)[known]
        begun[at] = np.clip(own, ops.start[at], ops.end[at])
    return begun


def _sums(timeline: Timeline, place: Place, rows: Int, begun: Int) -> _Sums:
    """Times of one device, at the edges of its window and of its steps."""
    ops, span = timeline.device_ops, place.span
    steps = place.steps
    edges = np.append(steps.start, steps.end[-1:])
    edges = np.concatenate([edges, place.inside])
    communicates = np.zeros(span.stop - span.first, np.bool_)
    communicates[rows - span.first] = True
    others = np.flatnonzero(~communicates) + span.first
    busy = covered_before(place.gaps.busy_start, place.gaps.busy_end, edges)
    exchanging = covered_before(*union(ops.start[rows], ops.end[rows]), edges)
    computing = covered_before(*union(ops.start[others], ops.end[others]), edges)
    exposed_waiting = np.zeros(len(edges), np.int64)
    waiting = exposed_waiting
    if (begun[rows] > ops.start[rows]).any():
        start = np.concatenate([ops.start[others], begun[rows]])
        end = np.concatenate([ops.end[others], ops.end[rows]])
        exposed_waiting = busy - covered_before(*_ordered_union(start, end), edges)
        working = covered_before(*_ordered_union(begun[rows], ops.end[rows]), edges)
        waiting = exchanging - working
    exposed = busy - computing
    before = np.stack([exchanging, exchanging - exposed, exposed, waiting, exposed_waiting])
    return _Sums(before[:, -1] - before[:, -2], np.diff(before[:, :-2], axis=1))


def _ordered_union(start: Int, end: Int) -> tuple[Int, Int]:
    order = np.argsort(start, kind="stable")
    return union(start[order], end[order])


def _together(sums: list[_Sums], places: list[Place], steps: StepTable) -> Int:
    """Sums over devices of each step that all of them have."""
    total = np.zeros((5, len(steps.number)), np.int64)
    for s, p in zip(sums, places, strict=True):
        if len(p.steps.number):
            at = np.searchsorted(p.steps.number, steps.number)
            total += s.each[:, np.minimum(at, len(p.steps.number) - 1)]
    return total


def _exchange(calls: int, sums: _Sums, steps: StepTable, each: Int, matched: bool) -> Exchange:
    busy, hidden, exposed, waiting, exposed_waiting = sums.total.tolist()
    per_step = [steps.median(column) for column in each]
    return Exchange(
        calls=calls,
        busy_ns=busy,
        hidden_ns=hidden,
        exposed_ns=exposed,
        waiting_ns=waiting if matched else None,
        exposed_waiting_ns=exposed_waiting if matched else None,
        busy_ns_per_step=per_step[0],
        hidden_ns_per_step=per_step[1],
        exposed_ns_per_step=per_step[2],
        exposed_waiting_ns_per_step=per_step[4] if matched else None,
    )


def _kinds(
    timeline: Timeline, rows: Int, kind: Int, begun: Int, matched: bool
) -> tuple[CollectiveKind, ...]:
    """One row a kind, the longest in all first."""
    ops = timeline.device_ops
    length = ops.end[rows] - ops.start[rows]
    waited = begun[rows] - ops.start[rows]
    found = []
    for value in np.unique(kind).tolist():
        mine = kind == value
        known = matched and Collective(value).waits_for_all
        found.append(
            CollectiveKind(
                kind=Collective(value).label,
                calls=int(mine.sum()),
                total_ns=int(length[mine].sum()),
                median_ns=median_ns(length[mine]) or 0,
                max_ns=int(length[mine].max()),
                waiting_ns=int(waited[mine].sum()) if known else None,
            )
        )
    return tuple(sorted(found, key=lambda k: -k.total_ns))


def _late(timeline: Timeline, places: list[Place], met: Meetings) -> tuple[Lateness, ...]:
    """How each device came to what it shares with others."""
    if not len(met.member):
        return ()
    ops = timeline.device_ops
    last, before, who = met.arrivals(ops)
    known = met.member >= 0
    waits = np.where(known, last[:, None] - met.times(ops.start), 0)
    found = []
    for number, place in enumerate(places):
        there = known[:, number]
        if not there.any():
            continue
        mine = there & (who == number) & (waits.sum(axis=1) > 0)
        # Collectives on several streams may keep others waiting at the same time.
        start, end = _ordered_union(
            before[mine] - met.shift[number], last[mine] - met.shift[number]
        )
        found.append(
            Lateness(
                rank=place.span.rank,
                device=place.span.device,
                met=int(there.sum()),
                last=int(mine.sum()),
                late_ns=int((end - start).sum()),
                others_waited_ns=int(waits[mine].sum()),
                waited_ns=int(waits[:, number].sum()),
                shift_ns=int(met.shift[number]),
                during_ns=_during(place, start, end),
                doing=_doing(timeline, place.pieces, start, end),
            )
        )
    return tuple(sorted(found, key=lambda late: -late.others_waited_ns))


def _during(place: Place, start: Int, end: Int) -> dict[str, int]:
    """What the device did in these intervals: busy and each part that is there at all."""
    inside = np.clip(np.stack([start, end]), *place.inside)

    def within(begin: Int, stop: Int) -> int:
        return int(np.diff(covered_before(begin, stop, inside), axis=0).sum())

    found = {"busy": within(place.gaps.busy_start, place.gaps.busy_end)}
    for part in Part:
        rows = place.pieces.part == part
        found[part.label] = within(place.pieces.start[rows], place.pieces.end[rows])
    return {name: ns for name, ns in found.items() if ns}


def _doing(timeline: Timeline, pieces: Pieces, start: Int, end: Int) -> tuple[Activity, ...]:
    """What the launching threads did in the host gaps of these intervals, the longest first."""
    gaps = pieces.rows(pieces.part == Part.HOST_GAP)
    ns = covered_before(start, end, gaps.end) - covered_before(start, end, gaps.start)
    calls, ranges = timeline.host_calls.name, timeline.ranges.name
    total: dict[tuple[str, str], int] = {}
    for i in np.flatnonzero(ns).tolist():
        call, around = int(gaps.call[i]), int(gaps.range[i])
        name = calls[call] if call >= 0 else ranges[around] if around >= 0 else ""
        key = Doing(int(gaps.doing[i])).label, name
        total[key] = total.get(key, 0) + int(ns[i])
    longest = sorted(total.items(), key=lambda item: -item[1])
    return tuple(Activity(how, name, long) for (how, name), long in longest[:5])


def _note(timeline: Timeline, places: list[Place], met: Meetings) -> str:
    """What waiting rests on, or why nothing is said of it."""
    ranks = {p.span.rank for p in places}
    size = max(timeline.meta.world_size, max(ranks) + 1)
    missing = size - len(ranks)
    if met.why_not:
        return f"Waiting is not told from work: {met.why_not}."
    if not len(met.member):
        others = f"the other {missing:,}" if missing else "ranks that are not here"
        return (
            f"Time in a collective may be waiting for {others}: with the recordings of all ranks, "
            "waiting is told from work."
        )
    said = []
    if missing:
        said.append(f"{missing:,} of {size:,} ranks are not here: one of them may be the late one.")
    moved = [
        f"rank {p.span.rank} by {shift / 1000:+,.3f} us"
        for p, shift in zip(places, met.shift.tolist(), strict=True)
        if shift
    ]
    if moved:
        said.append(
            f"Clocks of ranks disagree; moved so that their collectives end together: "
            f"{', '.join(moved)}."
        )
    return " ".join(said)
