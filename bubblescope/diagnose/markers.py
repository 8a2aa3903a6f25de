"""Where steps begin on the host: the marker, found in the order that the design gives."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bubblescope.diagnose import cycles, phases
from bubblescope.diagnose.bubbles import DeviceSpan, Gaps
from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import Markers
from bubblescope.diagnose.names import generic
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Coded, Timeline
from bubblescope.timeline.intervals import IntervalIndex, runs
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads

_NOT_A_STEP = re.compile(
    r"^(nccl:|record_param_comms|gloo:|## Call CompiledFxGraph|Torch-Compiled)"
)

_HOST_COPY = re.compile(r"^Memcpy (DtoH|HtoD)")


def find(
    timeline: Timeline,
    launches: Launches,
    threads: Threads,
    spans: list[DeviceSpan],
    gaps: list[Gaps],
    name: str | None,
) -> Markers | None:
    """The marker of the steps; None where nothing repeats."""
    if name is not None:
        return _named(timeline, launches, name)
    return (
        _recorded(timeline, launches)
        or _annotation(timeline, launches, threads)
        or _of_each_rank(lambda rank: _graph(timeline, launches, rank), spans)
        or _of_each_rank(lambda rank: _cycle(timeline, launches, threads, spans, gaps, rank), spans)
    )


def _of_each_rank(
    find_one: Callable[[int], Markers | None], spans: list[DeviceSpan]
) -> Markers | None:
    """What each rank's own work shows; graphs and cycles have no names that ranks would share."""
    found = [m for rank in sorted({s.rank for s in spans}) if (m := find_one(rank)) is not None]
    if len(found) < 2:
        return found[0] if found else None
    # Owners are numbered in the order of ranks.
    return Markers(
        found[0].name,
        np.concatenate([m.owner for m in found]),
        np.concatenate([m.number for m in found]),
        np.concatenate([m.start for m in found]),
        closed_end=False,
    )


def phases_of(timeline: Timeline, launches: Launches, markers: Markers | None) -> Int:
    """The phase that each marker's step states, shape (markers,); a model.Phase."""
    if markers is None:
        return np.zeros(0, np.int64)
    ranges = timeline.ranges
    owner = _owner_of(timeline, launches, ranges.rank, ranges.process)
    return phases.of_markers(timeline, owner, markers)


def _owner_of(timeline: Timeline, launches: Launches, rank: Int, process: Int) -> Int:
    calls = timeline.host_calls
    owner = np.full(len(rank), -1, np.int64)
    for row in np.unique(launches.owner, return_index=True)[1].tolist():
        same = (rank == calls.rank[row]) & (process == calls.process[row])
        owner[same] = launches.owner[row]
    return owner


def _named(timeline: Timeline, launches: Launches, name: str) -> Markers:
    """Ranges whose name is `name` where that repeats, else is `name` but for its numbers."""
    ranges = timeline.ranges
    wanted = generic(name)
    rows = np.flatnonzero(ranges.name.where(lambda n: n == name))
    if len(rows) < 2:
        rows = np.flatnonzero(ranges.name.where(lambda n: generic(n) == wanted))
    owner = _owner_of(timeline, launches, ranges.rank[rows], ranges.process[rows])
    rows = rows[owner >= 0]
    if not len(rows):
        common = _common(ranges.name.take(ranges.kind.where(lambda k: k == "annotation")))
        hint = f"; this recording has {common}" if common else ""
        raise BubblescopeError(f"--marker {name}: no such range in the recording{hint}")
    return _of_ranges(timeline, launches, rows, name)


def _common(names: Coded) -> str:
    found = sorted({generic(names.values[c]) for c in np.unique(names.codes).tolist()})
    return ", ".join(repr(n) for n in found[:5]) + (", ..." if len(found) > 5 else "")


def _of_ranges(timeline: Timeline, launches: Launches, rows: Int, name: str) -> Markers:
    ranges = timeline.ranges
    owner = _owner_of(timeline, launches, ranges.rank[rows], ranges.process[rows])
    rows, owner = rows[owner >= 0], owner[owner >= 0]
    return _counted(name, owner, ranges.start[rows], closed_end=True)


def _counted(name: str, owner: Int, start: Int, closed_end: bool) -> Markers:
    """In order, one mark a time of each owner, numbered from 0 within each."""
    order = np.lexsort((start, owner))
    owner, start = owner[order], start[order]
    first, _ = runs(owner, start)
    owner, start = owner[first], start[first]
    number = np.arange(len(owner)) - np.searchsorted(owner, owner, "left")
    return Markers(name, owner, number, start, closed_end)


def _recorded(timeline: Timeline, launches: Launches) -> Markers | None:
    steps = timeline.steps
    owner = _owner_of(timeline, launches, steps.rank, steps.process)
    rows = np.flatnonzero(owner >= 0)
    rows = rows[np.lexsort((steps.start[rows], owner[rows]))]
    if not len(rows):
        return None
    profiler = timeline.ranges.name.values
    name = "ProfilerStep" if any(n.startswith("ProfilerStep") for n in profiler) else "step"
    owner, number, start = owner[rows], steps.number[rows], steps.start[rows]
    # One mark that is there twice, in the file or in two threads, is one.
    same = (owner[1:] == owner[:-1]) & ((start[1:] == start[:-1]) | (number[1:] == number[:-1]))
    first = np.append(np.True_, ~same)
    owner, number, start = owner[first], number[first], start[first]
    # Numbers that begin again, as those of a profiler that was started twice, tell no step.
    if (number[1:] <= number[:-1])[owner[1:] == owner[:-1]].any():
        return _counted(name, owner, start, closed_end=True)
    return Markers(name, owner, number, start, True)


def _annotation(timeline: Timeline, launches: Launches, threads: Threads) -> Markers | None:
    """The outermost annotation that repeats and launches work; the one that launches most."""
    ranges, calls = timeline.ranges, timeline.host_calls
    wanted = ranges.kind.where(lambda k: k == "annotation")
    wanted &= ~ranges.name.where(lambda n: bool(_NOT_A_STEP.match(n)))
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return None
    names = ranges.name.take(rows).map(phases.series)
    # What an engine calls its step is one, even where the recording holds no other.
    told = np.zeros(len(names.values), np.bool_)
    told[np.unique(names.codes[ranges.name.take(rows).where(phases.is_engine_step)])] = True
    operations = np.bincount(launches.of_op[launches.of_op >= 0], minlength=len(calls))
    best: tuple[int, int] | None = None
    first, length = runs(ranges.rank[rows], ranges.process[rows], ranges.thread[rows])
    for f, n in zip(first.tolist(), length.tolist(), strict=True):
        mine = slice(f, f + n)
        head = rows[f]
        thread = threads.id_of(
            *(int(c[head]) for c in (ranges.rank, ranges.process, ranges.thread))
        )
        if thread is None:
            continue
        of_thread = threads.calls(thread)
        begins = calls.start[of_thread]
        launched = np.append(0, np.cumsum(operations[of_thread]))
        start, end, codes = ranges.start[rows[mine]], ranges.end[rows[mine]], names.codes[mine]
        work = launched[np.searchsorted(begins, end)] - launched[np.searchsorted(begins, start)]
        often = np.bincount(codes, minlength=len(names.values))
        working = np.bincount(codes[work > 0], minlength=len(names.values))
        repeats = ((often >= 2) | (told & (often > 0))) & (2 * working >= often)
        candidates = np.flatnonzero(repeats[codes])
        if not len(candidates):
            continue
        index = IntervalIndex(start[candidates], end[candidates])
        outer = index.enclosing(np.arange(len(candidates)), start[candidates]) < 0
        total = np.zeros(len(names.values), np.int64)
        np.add.at(total, codes[candidates][outer], work[candidates][outer])
        top = int(np.argmax(total))
        if best is None or int(total[top]) > best[0]:
            best = int(total[top]), top
    if best is None:
        return None
    chosen = rows[names.codes == best[1]]
    found = set(ranges.name.take(chosen).to_list())
    alike = set(map(generic, found))
    name = names.values[best[1]]
    if len(alike) == 1:
        (name,) = found if len(found) == 1 else alike
    return _of_ranges(timeline, launches, chosen, name)


def _graph(timeline: Timeline, launches: Launches, rank: int) -> Markers | None:
    """A rank's largest graph that repeats: by its operations, or by its time if recorded whole."""
    ops, calls = timeline.device_ops, timeline.host_calls
    opaque = ops.kind.where(lambda k: k == "graph") & (launches.of_op >= 0)
    rows = np.flatnonzero((launches.graph | opaque) & (ops.rank == rank))
    if not len(rows):
        return None
    launch, first, inverse = np.unique(launches.of_op[rows], return_index=True, return_inverse=True)
    size = np.bincount(inverse)
    long = np.zeros(len(launch), np.int64)
    np.add.at(long, inverse, (ops.end - ops.start)[rows])
    graph = np.where(ops.graph[rows[first]] >= 0, ops.graph[rows[first]], -1 - size)
    keys, of_key, often = np.unique(graph, return_inverse=True, return_counts=True)
    weight = np.zeros(len(keys), np.int64)
    np.maximum.at(weight, of_key, np.where(opaque[rows[first]], long, size))
    weight[often < 2] = -1
    top = int(np.argmax(weight))
    if weight[top] < 0:
        return None
    chosen = launch[of_key == top]
    name = f"graph of {int(weight[top])} operations"
    if opaque[rows[first]][of_key == top].any():
        name = f"graph {int(keys[top])}"
    return _counted(name, launches.owner[chosen], calls.start[chosen], closed_end=False)


def _cycle(
    timeline: Timeline,
    launches: Launches,
    threads: Threads,
    spans: list[DeviceSpan],
    gaps: list[Gaps],
    rank: int,
) -> Markers | None:
    """A cycle in the sequence of operations of a rank's busiest device."""
    number = int(np.argmax([(s.stop - s.first) * (s.rank == rank) for s in spans]))
    span, gap = spans[number], gaps[number]
    rows = np.arange(span.first, span.stop)
    rows = rows[launches.of_op[rows] >= 0]
    if not len(rows):
        return None
    rows = rows[np.argsort(launches.begin[rows], kind="stable")]
    names = _with_op(timeline, launches, threads, rows)
    copies = timeline.device_ops.name.take(rows).where(lambda name: bool(_HOST_COPY.match(name)))
    length = cycles.period(names, copies)
    if length is None:
        return None
    before = np.zeros(span.stop - span.first, np.int64)
    before[gap.op - span.first] = gap.end - gap.start
    regular = cycles.regular(names, length)
    at = regular.start + cycles.phase(length, before[rows[regular] - span.first])
    begins = rows[cycles.begins(names, length, at)]
    name = f"cycle of {length} operations"
    return _counted(name, launches.op_owner[begins], launches.begin[begins], closed_end=False)


def _with_op(
    timeline: Timeline, launches: Launches, threads: Threads, rows: Int
) -> npt.NDArray[np.int32]:
    """Codes of (operation name, framework op that launched it): the same kernel, told apart."""
    ops, ranges = timeline.device_ops, timeline.ranges
    around = np.full(len(rows), -1, np.int64)
    thread = threads.of_call[launches.of_op[rows]]
    is_op = ranges.kind.where(lambda k: k == "op")
    for number in np.flatnonzero(np.bincount(thread)).tolist():
        within = threads.ranges(number)
        at = np.flatnonzero(is_op[within]) + within.start
        if not len(at):
            continue
        mine = np.flatnonzero(thread == number)
        index = IntervalIndex(ranges.start[at], ranges.end[at])
        found = index.innermost(launches.begin[rows[mine]])
        around[mine] = np.where(found >= 0, ranges.name.codes[at[found]], -1)
    width = len(ranges.name.values) + 1
    pairs = ops.name.codes[rows].astype(np.int64) * width + around + 1
    if len(ops.name.values) * width > 16 * len(rows) + 1_000_000:
        return np.asarray(np.unique(pairs, return_inverse=True)[1], np.int32)
    used = np.zeros(len(ops.name.values) * width, np.int32)  # small: number them by a table
    used[pairs] = 1
    return np.asarray((np.cumsum(used) - 1)[pairs], np.int32)
