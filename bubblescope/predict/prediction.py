"""What the step would be: replay, check against the recording, edit, replay again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.diagnosis import Progress
from bubblescope.diagnose.model import Diagnosis, Part, StepTable, median_ns
from bubblescope.diagnose.names import generic
from bubblescope.errors import BubblescopeError
from bubblescope.predict import slack
from bubblescope.predict.clock import StepClock
from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph, Times
from bubblescope.predict.model import Inferred, Prediction, Replay
from bubblescope.predict.moved import moved
from bubblescope.predict.path import critical_path
from bubblescope.predict.whatifs.base import WhatIf
from bubblescope.timeline import Timeline
from bubblescope.timeline.tables import Int

TRUST = 100
"""A replay off by more than one part in so many is not trusted, nor a step unknown by more."""


def predict(
    timeline: Timeline,
    what_ifs: Sequence[WhatIf],
    *,
    diagnosis: Diagnosis | None = None,
    marker: str | None = None,
    window: tuple[int | None, int | None] | None = None,
    progress: Progress | None = None,
) -> Prediction:
    """What the steps of a recording would have taken.

    Args:
        timeline: the recording.
        what_ifs: what would be different, applied in this order; nothing, to have the recording
            replayed and its critical path found.
        diagnosis: of this timeline with the same marker and window; made where not given.
        marker: as of `diagnose`.
        window: as of `diagnose`.
        progress: called with what is being done and the share done, 0 to 1.

    Raises:
        BubblescopeError: a what-if fits nothing, or the recording cannot be diagnosed.
    """
    report = progress or (lambda _stage, _share: None)
    before = diagnosis or diagnose(timeline, marker=marker, window=window, progress=progress)
    report("building the graph", 0.0)
    graph = Graph(timeline, before.clocks.shift)
    edit = graph.edit()
    # First, so that a wrong pattern is said even where nothing can be predicted.
    assumed = [said for what_if in what_ifs for said in what_if.apply(graph, edit)]
    withheld = doubt(graph, before, before.steps)
    measured = before.steps.length_ns[before.steps.counted()]
    clock = None
    if before.markers is not None:
        clock = StepClock(timeline, graph.launches, before.markers, before.steps)
        measured = clock.lengths(timeline.device_ops.start, timeline.device_ops.end)
    step_ns = median_ns(measured)
    replayed_ns = predicted_ns = None
    unchanged = changed = after = None
    if not withheld and clock is not None:
        try:
            report("replaying", 0.3)
            plain = graph.edit()
            times = graph.replay(plain)
            unchanged = _replay(graph, clock, plain, times)
            replayed_ns = median_ns(unchanged.steps_ns)
            withheld = off(replayed_ns or 0, step_ns or 0)
            report("replaying with what is changed", 0.6)
            if not withheld:
                times = graph.replay(edit)
                made = _replay(graph, clock, edit, times)
                withheld = vanished(made.steps_ns)
                if not withheld:
                    changed, predicted_ns = made, median_ns(made.steps_ns)
                    after = _after(graph, times, edit, before, marker, window)
        except BubblescopeError as error:
            withheld = str(error)
    report("done", 1.0)
    return Prediction(
        what_ifs=tuple(what_if.text for what_if in what_ifs),
        assumed=tuple(dict.fromkeys(assumed)),
        withheld=withheld,
        step_ns=step_ns,
        replayed_ns=replayed_ns,
        predicted_ns=predicted_ns,
        number=before.steps.number[before.steps.counted()],
        measured=measured,
        unchanged=unchanged,
        changed=changed,
        inferred=inferred(graph),
        before=before,
        after=after,
    )


def doubt(graph: Graph, diagnosis: Diagnosis, steps: StepTable, *, excerpt: bool = False) -> str:
    """Why these steps of a recording cannot be predicted, "" where they can.

    excerpt: the graph is of a part of the recording.
    """
    counted = steps.counted()
    if diagnosis.markers is None or not counted.any():
        return "no whole step was found in the recording, so there is none to predict"
    unknown = int(steps.parts_ns[counted, Part.UNKNOWN].sum())
    length = int(steps.length_ns[counted].sum()) * len(diagnosis.devices)
    if TRUST * unknown > length:
        return (
            f"{unknown / length:.1%} of the steps is unknown: launches or operations are "
            "missing from the recording"
        )
    run, orphan = graph.end - graph.start, graph.launches.of_op < 0
    if excerpt:  # what ran first was launched before it
        orphan &= graph.start - graph.shift >= steps.start[counted][0]
    orphans, busy = int(run[orphan].sum()), int(run.sum())
    if TRUST * orphans > busy:
        return (
            f"operations whose launch was not recorded do {orphans / busy:.1%} of the work: "
            "what they waited for is not known"
        )
    return ""


def off(replayed_ns: int, step_ns: int) -> str:
    """Why an unchanged replay cannot be trusted, "" where it can."""
    gap = abs(replayed_ns - step_ns)
    if TRUST * gap <= step_ns:
        return ""
    return (
        f"replayed unchanged, the step takes {replayed_ns / step_ns:.1%} of what was "
        "recorded: the times contradict what must come before what"
    )


def vanished(steps_ns: Int) -> str:
    """Why replayed steps say nothing, "" where they do."""
    if (steps_ns > 0).all():
        return ""
    return "with this changed, steps begin before those ahead of them: they cannot be told apart"


def inferred(graph: Graph) -> Inferred:
    """How much of a graph was not recorded."""
    reads = np.unique(graph.waits.read)
    return Inferred(
        reads=int(graph.waits.inferred.sum()),
        stream_waits=int(graph.causes.crossings.inferred.sum()),
        fixed=len(graph.reads.call) - len(reads),
        unlaunched=int((graph.launches.of_op < 0).sum()),
    )


def _replay(graph: Graph, clock: StepClock, edit: Edit, times: Times) -> Replay:
    steps = clock.lengths(times.start, times.end, edit.gone)
    counted = int(clock.number[-1] - clock.number[0]) + 1
    begin, end = clock.window(times.start, times.end, edit.gone)
    shown = (begin + graph.shift, end + graph.shift)
    return Replay(
        steps,
        critical_path(graph, edit, times, shown, counted),
        slack.find(graph, clock, edit, times, median_ns(steps) or 0),
    )


def _after(
    graph: Graph,
    times: Times,
    edit: Edit,
    before: Diagnosis,
    marker: str | None,
    window: tuple[int | None, int | None] | None,
) -> Diagnosis | None:
    """Where the time would go; None where nothing is left to diagnose."""
    if marker is None:
        ranges = graph.timeline.ranges.name.values
        wanted = generic(before.marker)
        marker = before.marker if any(generic(name) == wanted for name in ranges) else None
        if len(graph.timeline.steps):
            marker = None
    try:
        return diagnose(moved(graph, times, edit), marker=marker, window=window)
    except BubblescopeError:
        return None
