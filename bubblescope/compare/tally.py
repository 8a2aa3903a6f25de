"""What a recording holds, counted by name: in all, and a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bubblescope.compare.families import family
from bubblescope.compare.model import Middle
from bubblescope.compare.rows import Places, Rows
from bubblescope.compare.run import Run
from bubblescope.timeline import Coded, api
from bubblescope.timeline.tables import Int

Label = tuple[str, str]
"""Group and name of a row."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many rows of one label, and how long they lasted together: in all, and a step."""

    count: int
    ns: int
    count_per_step: Middle
    ns_per_step: Middle


Tallies = dict[Label, Tally]


def kinds(run: Run, rows: Rows) -> Tallies:
    """Device operations by kind."""
    ops = run.timeline.device_ops
    return _tally(run, rows.ops, ops.kind, ops.name, _kind, ops.end - ops.start)


def families(run: Run, rows: Rows) -> Tallies:
    """Device operations: kernels by family, copies and sets by name, graphs together."""
    ops = run.timeline.device_ops
    return _tally(run, rows.ops, ops.kind, ops.name, _family, ops.end - ops.start)


def calls(run: Run, rows: Rows) -> Tallies:
    """CUDA calls by what they do and name."""
    table = run.timeline.host_calls
    return _tally(run, rows.calls, table.sync, table.name, _call, table.end - table.start)


def framework_ops(run: Run, rows: Rows) -> Tallies:
    """Framework ops by name. They nest, so that their time means nothing as a sum."""
    ranges = run.timeline.ranges
    chosen = ranges.kind.where(lambda kind: kind == "op")
    ops = ranges.take(chosen)
    places = Places(rows.ranges.step[chosen], rows.ranges.inside[chosen])
    return _tally(run, places, ops.kind, ops.name, lambda kind, name: (kind, name), ops.start * 0)


def launches(run: Run, rows: Rows) -> Tally:
    """All launches of kernels and graphs together."""
    table = run.timeline.host_calls
    found = _tally(
        run,
        rows.calls,
        table.sync,
        table.name,
        lambda sync, name: (_call(sync, name)[0], ""),
        table.end - table.start,
    )
    return found.get(("launch", ""), nothing(int(run.diagnosis.steps.counted().sum())))


def nothing(steps: int) -> Tally:
    """Of a label that is not there, in a recording of so many steps that count."""
    never = Middle.of(np.zeros(steps, np.int64))
    return Tally(0, 0, never, never)


def _kind(kind: str, name: str) -> Label:
    if kind == "memcpy":
        words = name.split()
        direction = words[1] if len(words) > 1 and words[0] == "Memcpy" else ""
        return "copy", f"copy {direction}".rstrip()
    return kind, kind


def _family(kind: str, name: str) -> Label:
    if kind == "kernel":
        return kind, family(name)
    # Graphs are numbered by handles, which are others in each process.
    return ("copy" if kind == "memcpy" else kind), ("graph replay" if kind == "graph" else name)


def _call(_sync: str, name: str) -> Label:
    if api.is_kernel_launch(name) or api.is_graph_launch(name):
        return "launch", name
    if api.is_copy(name):
        return "copy", name
    if api.is_sync(name):
        return "synchronise", name
    if api.is_allocator(name):
        return "allocator", name
    return "other", name


def _tally(
    run: Run,
    places: Places,
    kind: Coded,
    name: Coded,
    label: Callable[[str, str], Label],
    length: Int,
) -> Tallies:
    """Count the rows inside the window by their label, called once a distinct kind and name."""
    steps = run.diagnosis.steps
    counted, many = steps.counted(), len(steps.number)
    pairs, code = np.unique(
        kind.codes.astype(np.int64) * max(len(name.values), 1) + name.codes, return_inverse=True
    )
    seen: dict[Label, int] = {}
    labels = np.fromiter(
        (
            seen.setdefault(
                label(kind.values[p // len(name.values)], name.values[p % len(name.values)]),
                len(seen),
            )
            for p in pairs.tolist()
        ),
        np.int64,
        len(pairs),
    )
    rows = np.flatnonzero(places.inside)
    group = labels[code.reshape(-1)[rows]]
    rows, group = rows[np.argsort(group, kind="stable")], np.sort(group)
    edges = np.searchsorted(group, np.arange(len(seen) + 1)).tolist()
    found: Tallies = {}
    for number, key in enumerate(seen):  # a label at a time: labels times steps may be many
        mine = rows[edges[number] : edges[number + 1]]
        if not len(mine):
            continue
        stepped = mine[places.step[mine] >= 0]
        each = np.bincount(places.step[stepped], minlength=many)
        time = np.zeros(many, np.int64)
        np.add.at(time, places.step[stepped], length[stepped])
        found[key] = Tally(
            len(mine),
            int(length[mine].sum()),
            Middle.of(each[counted]),
            Middle.of(time[counted]),
        )
    return found
