"""Which step each row of a recording belongs to: that in which it was launched, or called."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.compare.run import Run
from bubblescope.diagnose import launches
from bubblescope.diagnose.steps import marker_of
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

NO_STEP = -1


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """For each row of a table: its row in the diagnosis's steps, NO_STEP for none.

    inside: it lies in the diagnosed window.
    """

    step: Int
    inside: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The places of `device_ops`, `host_calls` and `ranges`."""

    ops: Places
    calls: Places
    ranges: Places


def place(run: Run) -> Rows:
    """Assign every row to a step, as the diagnosis assigned operations.

    What has no launch, or belongs to a process without markers, is placed by its own time.
    """
    timeline = run.timeline
    ops, calls, ranges = timeline.device_ops, timeline.host_calls, timeline.ranges
    joined = launches.join(timeline)
    range_owner = np.full(len(ranges), -1, np.int64)
    for row in np.unique(joined.owner, return_index=True)[1].tolist():
        same = (ranges.rank == calls.rank[row]) & (ranges.process == calls.process[row])
        range_owner[same] = joined.owner[row]
    op_owner = np.where(joined.of_op >= 0, joined.op_owner, -1)
    return Rows(
        _placed(run, op_owner, joined.begin, ops.start),
        _placed(run, joined.owner, calls.start, calls.start),
        _placed(run, range_owner, ranges.start, ranges.start),
    )


def _placed(run: Run, owner: Int, time: Int, at: Int) -> Places:
    """By `time` among the owner's markers; by `at` among the steps where it has none."""
    steps, marks = run.diagnosis.steps, run.diagnosis.markers
    if marks is None or not len(steps.number):
        step = np.full(len(time), NO_STEP, np.int64)
    else:
        marker = marker_of(marks, owner, time)
        before = int(marks.number[0]) - 1
        number = np.where(marker >= 0, marks.number[np.maximum(marker, 0)], before)
        row = np.searchsorted(steps.number, number)
        row[row == len(steps.number)] = 0
        row = np.where(steps.number[row] == number, row, NO_STEP)
        by_time = np.searchsorted(steps.start, at, "right") - 1
        by_time[at >= steps.end[by_time]] = NO_STEP
        step = np.where(marker >= -1, row, by_time)
    whole = run.window is None
    return Places(step, np.ones(len(step), np.bool_) if whole else step >= 0)
