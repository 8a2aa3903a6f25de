"""What filled the host gaps: the records that the launching threads were in, by name."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose import names
from bubblescope.diagnose.model import Doing, Filler, Part, Pieces, StepTable, median_ns
from bubblescope.timeline import Timeline


def find(timeline: Timeline, pieces: list[Pieces], steps: StepTable) -> tuple[Filler, ...]:
    """Fillers of the host gaps of all devices, the longest first."""
    calls = timeline.host_calls.name
    ranges = names.merged(timeline.ranges)
    in_gaps = [p.rows(p.part == Part.HOST_GAP) for p in pieces]
    gaps = Pieces.concat(in_gaps)
    doing, start, length = gaps.doing.astype(np.int64), gaps.start, gaps.end - gaps.start
    call, range_ = gaps.call, gaps.range
    if not len(doing):
        return ()
    # What owns each piece by name, and for calls the range that asked.
    no_name = len(calls.values) + len(ranges.values)
    name = np.full(len(doing), no_name, np.int64)
    in_call, in_range = call >= 0, (call < 0) & (range_ >= 0)
    name[in_call] = calls.codes[call[in_call]]
    name[in_range] = len(calls.values) + ranges.codes[range_[in_range]]
    under = np.full(len(doing), len(ranges.values), np.int64)
    asked = in_call & (range_ >= 0)
    under[asked] = ranges.codes[range_[asked]]
    key = (name * (len(ranges.values) + 1) + under) * len(Doing) + doing
    keys, first, group = np.unique(key, return_index=True, return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, group, length)
    record = np.where(in_call, call, len(timeline.host_calls) + range_ + 1)
    span = len(timeline.host_calls) + len(timeline.ranges) + 1
    count = np.bincount(np.unique(group * span + record) // span, minlength=len(keys))
    stretches = np.bincount(group, minlength=len(keys))
    per_step = _per_step(group, start, length, len(keys), steps)
    labels, unders = [*calls.values, *ranges.values, ""], [*ranges.values, ""]
    return tuple(
        Filler(
            doing=Doing(int(doing[first[i]])).label,
            name=labels[name[first[i]]],
            under=unders[under[first[i]]],
            count=int((count if name[first[i]] < no_name else stretches)[i]),
            ns=int(total[i]),
            ns_per_step=per_step[i],
        )
        for i in np.argsort(-total, kind="stable").tolist()
    )


def _per_step(
    group: np.ndarray, start: np.ndarray, length: np.ndarray, groups: int, steps: StepTable
) -> list[int | None]:
    """Median over counted steps of the time of each group."""
    if not steps.counted().any():
        return [None] * groups
    step = np.searchsorted(steps.start, start, "right") - 1
    inside = step >= 0
    key, which = np.unique(group[inside] * len(steps.start) + step[inside], return_inverse=True)
    sums = np.zeros(len(key), np.int64)
    np.add.at(sums, which, length[inside])
    counted = steps.counted()
    result: list[int | None] = []
    first = np.searchsorted(key, np.arange(groups + 1) * len(steps.start))
    for g in range(groups):
        row = np.zeros(len(steps.start), np.int64)
        mine = slice(first[g], first[g + 1])
        row[key[mine] % len(steps.start)] = sums[mine]
        result.append(median_ns(row[counted]))
    return result
