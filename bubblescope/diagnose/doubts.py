"""What is missing or doubtful in a recording: health notes and warnings."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose.launches import NEVER, Launches
from bubblescope.diagnose.model import Clocks, HealthNote, Markers
from bubblescope.timeline import Timeline, api


def find(
    timeline: Timeline,
    launches: Launches,
    clocks: Clocks,
    markers: Markers | None,
    early: int,
    unknown_share: float,
) -> tuple[tuple[HealthNote, ...], tuple[str, ...]]:
    """Health notes (what, how many, meaning) and warnings (what to keep in mind)."""
    health = timeline.health
    notes = [
        HealthNote(health.kind[i], int(health.count[i]), health.note[i]) for i in range(len(health))
    ]
    warnings: list[str] = []
    for note, warning in (
        _lost(timeline, launches),
        _unlaunched(launches),
        _incomplete(launches),
        _skew(clocks, early),
    ):
        if note is not None:
            notes.append(note)
        if warning:
            warnings.append(warning)
    if unknown_share > 0.05:
        warnings.append(
            f"{unknown_share:.0%} of the window is unknown: busy and idle are lower bounds, and no "
            "share of the step can be trusted."
        )
    drift = _out_of_step(timeline, launches, markers)
    if drift:
        warnings.append(drift)
    return tuple(notes), tuple(warnings)


def mostly_lost(timeline: Timeline, launches: Launches) -> str:
    """Says so where most launches left no operation, and not only before or after all others.

    The time around them is unknown; but where few operations are recorded, none of it may lie in
    the window, which is then no sample of what ran.
    """
    calls = timeline.host_calls
    launching = calls.name.where(lambda n: api.is_kernel_launch(n) or api.is_graph_launch(n))
    rows = np.unique(launches.of_op[launches.of_op >= 0])
    lost, recorded = calls.start[launches.lost], calls.start[rows[launching[rows]]]
    if len(lost) <= len(recorded):
        return ""
    if len(recorded) and (lost.max() < recorded.min() or lost.min() > recorded.max()):
        return ""
    return f"{len(lost):,} of {len(lost) + len(recorded):,} launches left no device record"


def _lost(timeline: Timeline, launches: Launches) -> tuple[HealthNote | None, str]:
    if not len(launches.lost):
        return None, ""
    calls = timeline.host_calls
    lost = calls.start[launches.lost]
    recorded = launches.begin[launches.begin != NEVER]
    where, effect = ", throughout the recording", "the time around them is unknown, not idle"
    if not len(recorded):
        where, effect = "", "what the device ran is not known"
    elif lost.max() < recorded.min():
        where, effect = " at the start", "what ran before the first record is not known"
    elif lost.min() > recorded.max():
        where, effect = " at the end", "what ran after the last record is not known"
    launching = calls.name.where(lambda n: api.is_kernel_launch(n) or api.is_graph_launch(n))
    graphs = int(calls.name.take(launches.lost).where(api.is_graph_launch).sum())
    is_graph = graphs == len(lost)
    of = calls.name.where(api.is_graph_launch) if is_graph else launching
    note = (
        f"{len(lost):,} of {int(of.sum()):,} {'graph ' * is_graph}launches left no device record"
        f"{where}"
    )
    return HealthNote("launch without device record", len(lost), note), f"{note}: {effect}."


def _unlaunched(launches: Launches) -> tuple[HealthNote | None, str]:
    count = int((launches.of_op < 0).sum())
    if not count:
        return None, ""
    note = f"{count:,} of {len(launches.of_op):,} device operations have no recorded launch"
    warning = ""
    if 20 * count > len(launches.of_op):
        warning = f"{note}: bubbles that they end are unknown."
    return HealthNote("operation without launch", count, note), warning


def _incomplete(launches: Launches) -> tuple[HealthNote | None, str]:
    rows = launches.of_op[launches.incomplete]
    if not len(rows):
        return None, ""
    short = len(np.unique(rows))
    total = len(np.unique(launches.of_op[launches.graph]))
    note = f"{short:,} of {total:,} graph replays hold fewer operations than their graph"
    return (
        HealthNote("incomplete graph replay", short, note),
        f"{note}: gaps in and beside them are unknown.",
    )


def _skew(clocks: Clocks, early: int) -> tuple[HealthNote | None, str]:
    if clocks.shift:
        note = (
            f"device times moved by {clocks.shift / 1000:+,.3f} us against the host's: the least "
            "that lets no operation start before its launch and no read return before its work"
        )
        return HealthNote("clock skew", 1, note), ""
    if early:
        note = f"{early:,} operations start before their launch, and no one offset mends it"
        return HealthNote("clock skew", early, note), f"{note}: their bubbles are unresolved."
    return None, ""


def _out_of_step(timeline: Timeline, launches: Launches, markers: Markers | None) -> str:
    """Says so where device work runs far from the marker that launched it."""
    if markers is None or not markers.closed_end or len(markers.start) < 2:
        return ""
    ops = timeline.device_ops
    known = np.flatnonzero(launches.of_op >= 0)
    outside = total = 0
    for who in np.unique(markers.owner).tolist():
        first, stop = np.searchsorted(markers.owner, [who, who + 1]).tolist()
        starts = markers.start[first:stop]
        mine = known[launches.op_owner[known] == who]
        launched = np.searchsorted(starts, launches.begin[mine], "right") - 1
        ran = np.searchsorted(starts, ops.start[mine], "right") - 1
        inside = (launched >= 0) & (launched < len(starts) - 1)
        # One step ahead is how an engine keeps its device busy; more is worth knowing.
        outside += int((ran > launched + 1)[inside].sum())
        total += int(inside.sum())
    if 2 * outside <= total or not total:
        return ""
    return (
        f"{outside / total:.0%} of device operations run more than one {markers.name!r} after the "
        "one that launched them: steps are cut by what each one launched, not by when it ran."
    )
