"""What filled the host gaps: the records that the launching threads were in, by name."""

from __future__ import annotations

import re

import numpy as np

from bubblescope.diagnose.model import Doing, Filler, Part, Pieces, StepTable, median_ns
from bubblescope.timeline import Timeline

_NUMBER = re.compile(r"#\d+")


def find(timeline: Timeline, pieces: list[Pieces], steps: StepTable) -> tuple[Filler, ...]:
    """Fillers of the host gaps of all devices, the longest first."""
    calls = timeline.host_calls.name
    ranges = timeline.ranges.name.map(lambda name: _NUMBER.sub("#", name))
    in_gaps = [p.rows(p.part == Part.HOST_GAP) for p in pieces]
    gaps = Pieces.concat(in_gaps)
    doing, start, length = gaps.doing.astype(np.int64), gaps.start, gaps.end - gaps.start
    call, range_ = gaps.call, gaps.range
    if not len(doing):
        return ()
    # One code for each (what, name): calls first, then ranges, then nothing.
    code = np.full(len(doing), -1, np.int64)
    code[call >= 0] = calls.codes[call[call >= 0]]
    in_range = (call < 0) & (range_ >= 0)
    code[in_range] = len(calls.values) + ranges.codes[range_[in_range]]
    key = code * len(Doing) + doing
    keys, group = np.unique(key, return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, group, length)
    calls_then_ranges = len(timeline.host_calls) + len(timeline.ranges) + 1
    record = np.where(call >= 0, call, len(timeline.host_calls) + range_ + 1)
    records = np.unique(group * calls_then_ranges + record) // calls_then_ranges
    count = np.bincount(records, minlength=len(keys))
    per_step = _per_step(group, start, length, len(keys), steps)
    names = [*calls.values, *ranges.values]
    order = np.argsort(-total, kind="stable").tolist()
    return tuple(
        Filler(
            doing=Doing(int(keys[i]) % len(Doing)).label,
            name=names[int(keys[i]) // len(Doing)] if keys[i] >= 0 else "",
            count=int(count[i]) if keys[i] >= 0 else int((group == i).sum()),
            ns=int(total[i]),
            ns_per_step=per_step[i],
        )
        for i in order
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
