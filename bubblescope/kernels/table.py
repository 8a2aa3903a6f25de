"""From a Timeline and its Diagnosis to the table of its kernels."""

from __future__ import annotations

import numpy as np

from bubblescope.compare.families import family
from bubblescope.compare.rows import place
from bubblescope.compare.run import Run
from bubblescope.diagnose import launches
from bubblescope.diagnose.model import Diagnosis, StepTable, median_ns
from bubblescope.kernels.model import Kernel, Kernels
from bubblescope.timeline import Timeline
from bubblescope.timeline.coded import Coded
from bubblescope.timeline.intervals import Mask, runs
from bubblescope.timeline.tables import Int

RECORDED = "the recording's own records"


def tabulate(
    timeline: Timeline, diagnosis: Diagnosis, *, by: str = "name", durations: str = RECORDED
) -> Kernels:
    """The kernels, copies and sets of the counted steps.

    Args:
        timeline: the recording.
        diagnosis: of the same recording; it says which steps count.
        by: "name", or "family": one row for all instances of a function.
        durations: where they come from, in words.
    """
    ops = timeline.device_ops
    rows, step = _in_steps(timeline, diagnosis)
    kind, name = ops.kind.take(rows), ops.name.take(rows)
    if by == "family":
        is_kernel = kind.where(lambda k: k == "kernel")
        both = Coded.concat([name.map(family), name])
        codes = np.where(is_kernel, both.codes[: len(rows)], both.codes[len(rows) :])
        label = Coded(codes, both.values)
    else:
        label = name
    start, end = ops.start[rows], ops.end[rows]
    duration = end - start
    whole = kind.where(lambda k: k == "graph")
    by_graph = launches.join(timeline).by_graph[rows] | (ops.graph[rows] >= 0) | whole
    steps = int(diagnosis.steps.counted().sum())
    busy = sum(
        _union(start[mine], end[mine]) for mine in _devices(ops.rank[rows], ops.device[rows])
    )
    table = Kernels(
        diagnosis=diagnosis,
        by=by,
        durations=durations,
        steps=steps,
        window_ns=sum(_window(d.steps, diagnosis.steps, d.window_ns) for d in diagnosis.devices),
        busy_ns=busy,
        overlapped_ns=int(duration.sum()) - busy,
        opaque_ns=int(duration[whole].sum()),
        operations=len(rows),
        rows=_rows(kind, label, name, ops.stream[rows], by_graph, duration, step, steps),
    )
    if sum(row.total_ns for row in table.rows) != table.durations_ns:
        raise AssertionError("rows do not add up to all durations; please report this")
    return table


def _counted(own: StepTable, all_: StepTable) -> Mask:
    """The steps of a device that medians are taken over."""
    return np.isin(own.number, all_.number[all_.counted()])


def _window(own: StepTable, all_: StepTable, window_ns: int) -> int:
    if not all_.counted().any():
        return window_ns
    return int(own.length_ns[_counted(own, all_)].sum())


def _in_steps(timeline: Timeline, diagnosis: Diagnosis) -> tuple[Int, Int]:
    """Rows of `device_ops` that counted steps launched, and which of these steps, from 0.

    Where no step counts, the rows of the window, all in step 0.
    """
    ops, counted = timeline.device_ops, diagnosis.steps.counted()
    if counted.any():
        step = place(Run(timeline, diagnosis)).ops.step
        rows = np.flatnonzero((step >= 0) & counted[np.maximum(step, 0)])
        return rows, (np.cumsum(counted) - 1)[step[rows]]
    inside = np.zeros(len(ops), np.bool_)
    for device in diagnosis.devices:
        mine = (ops.rank == device.rank) & (ops.device == device.device)
        inside |= mine & (ops.start >= device.start) & (ops.start <= device.end)
    rows = np.flatnonzero(inside)
    return rows, np.zeros(len(rows), np.int64)


def _devices(rank: Int, device: Int) -> list[Int]:
    """The rows of each device."""
    number = np.unique(np.stack([rank, device]), axis=1, return_inverse=True)[1].reshape(-1)
    return [np.flatnonzero(number == n) for n in range(int(number.max()) + 1 if len(number) else 0)]


def _union(start: Int, end: Int) -> int:
    """Time in which at least one of the intervals runs; they are ordered by start."""
    if not len(start):
        return 0
    reach = np.maximum.accumulate(end)
    before = np.append(start[:1], np.maximum(reach[:-1], start[1:]))
    return int(np.maximum(reach - before, 0).sum())


def _rows(
    kind: Coded,
    label: Coded,
    name: Coded,
    stream: Int,
    by_graph: Mask,
    duration: Int,
    step: Int,
    steps: int,
) -> tuple[Kernel, ...]:
    """One row a (kind, label), the longest in total first."""
    key = label.codes.astype(np.int64) * max(len(kind.values), 1) + kind.codes
    group = np.unique(key, return_inverse=True)[1].astype(np.int64).reshape(-1)
    order = np.lexsort((duration, group))
    first, calls = runs(group[order])
    made: list[Kernel] = []
    for begin, count in zip(first.tolist(), calls.tolist(), strict=True):
        mine = order[begin : begin + count]
        ordered = duration[mine]  # lexsort left them in order
        sums = np.zeros(max(steps, 1), np.int64)
        np.add.at(sums, step[mine], ordered)
        made.append(
            Kernel(
                name=label[mine[0]],
                kind=kind[mine[0]],
                names=len(np.unique(name.codes[mine])),
                streams=tuple(np.unique(stream[mine]).tolist()),
                in_graphs=int(by_graph[mine].sum()),
                calls=count,
                total_ns=int(ordered.sum()),
                median_ns=median_ns(ordered) or 0,
                p90_ns=int(ordered[(9 * count + 9) // 10 - 1]),
                min_ns=int(ordered[0]),
                max_ns=int(ordered[-1]),
                calls_per_step=count / steps if steps else None,
                ns_per_step=median_ns(sums) if steps else None,
            )
        )
    return tuple(sorted(made, key=lambda row: (-row.total_ns, row.name, row.kind)))
