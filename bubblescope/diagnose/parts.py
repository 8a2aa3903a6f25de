"""Every bubble split into its parts: the rules of the design, applied to a device at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bubblescope.diagnose.bubbles import DeviceSpan, Gaps, first_of_replay
from bubblescope.diagnose.host import HostActivity
from bubblescope.diagnose.launches import NEVER, Launches
from bubblescope.diagnose.model import Part, Pieces
from bubblescope.diagnose.work import QueuedWork
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Which rule each bubble of a device falls under; masks, shape (n,), one True a bubble."""

    unknown: Mask
    graph: Mask
    queued: Mask
    late: Mask
    unresolved: Mask


def apply_rules(
    timeline: Timeline,
    launches: Launches,
    span: DeviceSpan,
    gaps: Gaps,
    too_early: Mask,
    shift: int,
) -> Rules:
    """Sort a device's bubbles by the rule that explains them."""
    op = gaps.op
    unknown = (launches.of_op[op] < 0) | launches.incomplete[op] | gaps.before_incomplete
    unknown |= _beside_lost(timeline, launches, gaps)
    inner = launches.graph[op] & ~first_of_replay(launches, span)[op - span.first]
    graph = ~unknown & inner
    rest = ~unknown & ~graph
    unresolved = rest & too_early[op]
    queued = rest & ~unresolved & (launches.end[op] <= gaps.start + shift)
    return Rules(unknown, graph, queued, rest & ~unresolved & ~queued, unresolved)


def _beside_lost(timeline: Timeline, launches: Launches, gaps: Gaps) -> Mask:
    """Bubbles in which an operation may have run whose record was lost.

    A launch without a record lies between the launch of the operation that ran last before the
    bubble and that of the operation that ended it.
    """
    beside = np.zeros(len(gaps.op), np.bool_)
    owner = launches.op_owner[gaps.op]
    for who in np.unique(launches.owner[launches.lost]).tolist():
        rows = launches.lost[launches.owner[launches.lost] == who]
        lost = np.sort(timeline.host_calls.start[rows])
        mine = (owner == who) & (gaps.before_begin != NEVER)
        after = np.searchsorted(lost, gaps.before_begin[mine], "right")
        before = np.searchsorted(lost, launches.begin[gaps.op[mine]], "left")
        beside[mine] = before > after
    return beside


def stream_waits(
    timeline: Timeline,
    launches: Launches,
    work: QueuedWork,
    gaps: Gaps,
    queued: Mask,
    span: DeviceSpan,
) -> Int:
    """How far into each queued bubble its operation's stream waited for an event, in ns."""
    calls, ops = timeline.host_calls, timeline.device_ops
    result = np.zeros(len(gaps.op), np.int64)
    waits = np.flatnonzero(calls.sync.where(lambda kind: kind == "stream wait"))
    if not len(waits):
        return result
    until = work.ends(work.before_event(waits))
    previous = _launch_before_on_stream(ops.stream, launches, span)
    for who, stream in np.unique(
        np.stack([launches.owner[waits], calls.stream[waits]], 1), axis=0
    ).tolist():
        of_stream = (launches.owner[waits] == who) & (calls.stream[waits] == stream)
        rows = waits[of_stream]
        order = np.argsort(calls.start[rows], kind="stable")
        begun, ends = calls.start[rows][order], until[of_stream][order]
        mine = np.flatnonzero(
            queued & (launches.op_owner[gaps.op] == who) & (ops.stream[gaps.op] == stream)
        )
        op = gaps.op[mine]
        low = np.searchsorted(begun, previous[op - span.first], "right")
        high = np.searchsorted(begun, launches.begin[op], "left")
        some = low < high
        mine, low, high = mine[some], low[some], high[some]
        if len(mine):
            # reduceat over [low, high) of each: the odd entries are the stretches between.
            ends = np.append(ends, NEVER)
            bounds = np.stack([low, high], 1).reshape(-1)
            latest = np.maximum.reduceat(ends, bounds)[::2]
            reach = np.clip(latest, gaps.start[mine], gaps.end[mine])
            result[mine] = reach - gaps.start[mine]
    return result


def _launch_before_on_stream(stream: Int, launches: Launches, span: DeviceSpan) -> Int:
    """When the operation before each one on its stream was launched; NEVER for the first."""
    rows = np.arange(span.first, span.stop)
    order = np.lexsort((rows, stream[rows]))
    by_stream = stream[rows][order]
    begin = launches.begin[rows][order]
    previous = np.full(len(rows), NEVER, np.int64)
    same = by_stream[1:] == by_stream[:-1]
    previous[order[1:][same]] = begin[:-1][same]
    return previous


def cut(
    rules: Rules,
    gaps: Gaps,
    launches: Launches,
    threads: Int,
    waits: Int,
    activity: HostActivity,
    shift: int,
) -> Pieces:
    """The pieces of every bubble of a device, in time order.

    waits: length of the stream wait of each queued bubble. shift: what brings device times to the
    host clock; pieces come back in device time.
    """
    made = _Maker()
    for mask, part in (
        (rules.unknown, Part.UNKNOWN),
        (rules.graph, Part.GRAPH_GAP),
        (rules.unresolved, Part.UNRESOLVED),
    ):
        rows = np.flatnonzero(mask)
        made.add(rows, gaps.start[rows], gaps.end[rows], part)

    rows = np.flatnonzero(rules.queued)
    waited = gaps.start[rows] + waits[rows]
    made.add(rows, gaps.start[rows], waited, Part.STREAM_WAIT)
    made.add(rows, waited, gaps.end[rows], Part.DEVICE_GAP)

    rows = np.flatnonzero(rules.late)
    launch = launches.of_op[gaps.op[rows]]
    begin, end = launches.begin[gaps.op[rows]] - shift, launches.end[gaps.op[rows]] - shift
    start, stop = gaps.start[rows], gaps.end[rows]
    called = np.clip(begin, start, stop)
    returned = np.clip(end, called, stop)
    made.add(rows, called, returned, Part.LAUNCH_CALL, launch)
    made.add(rows, returned, stop, Part.LAUNCH_LATENCY, launch)
    on_thread = np.where(called > start, threads[launch], -1)
    for thread in np.unique(on_thread[on_thread >= 0]).tolist():
        of = on_thread == thread
        host = activity.pieces(thread, rows[of], start[of] + shift, called[of] + shift)
        made.add(
            host.bubble,
            host.start - shift,
            host.end - shift,
            host.part,
            host.call,
            host.doing,
            host.range,
        )
    return made.pieces()


class _Maker:
    """Collects pieces of all kinds and brings them into time order."""

    def __init__(self) -> None:
        self._columns: list[list[npt.NDArray[Any]]] = [[] for _ in range(7)]

    def add(
        self,
        bubble: Int,
        start: Int,
        end: Int,
        part: Part | npt.NDArray[np.int8],
        call: Int | None = None,
        doing: npt.NDArray[np.int8] | None = None,
        range_: Int | None = None,
    ) -> None:
        """Add a piece for each row that is not empty."""
        some = np.flatnonzero(end > start)

        def column(values: npt.NDArray[Any] | int | None, dtype: type) -> npt.NDArray[Any]:
            if isinstance(values, np.ndarray):
                return values[some]
            return np.full(len(some), -1 if values is None else values, dtype)

        for to, values in zip(
            self._columns,
            (
                bubble[some],
                start[some],
                end[some],
                column(part, np.int8),
                column(0 if doing is None else doing, np.int8),
                column(call, np.int64),
                column(range_, np.int64),
            ),
            strict=True,
        ):
            to.append(values)

    def pieces(self) -> Pieces:
        """All pieces, in time order."""
        columns = [np.concatenate(c) for c in self._columns]
        order = np.argsort(columns[1], kind="stable")
        return Pieces(*(c[order] for c in columns))
