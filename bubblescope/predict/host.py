"""Host threads as chains: outermost calls in order, what lies between them, and their waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import median_ns
from bubblescope.diagnose.reads import Reads, for_all_streams
from bubblescope.diagnose.work import QueuedWork
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import Mask, runs
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Outermost calls, ordered by (thread, begin); a read made of many queries is one of them.

    call: row of `host_calls` that begins it. begin, end: host times, ns. gap: from the end of the
    span before to its begin, -1 for the first of its thread. of_call: the span that each call lies
    in, shape (calls,).
    """

    thread: Int
    call: Int
    begin: Int
    end: Int
    gap: Int
    of_call: Int

    @property
    def leads(self) -> Mask:
        """The first span of each thread."""
        return self.gap < 0


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Blocking reads as the graph has them, one row a span that waits, in the order of spans.

    span: which. read: row of the reads table, -1 where none is. op: row of `device_ops` that was
    awaited. own: what the call takes by itself; back: from the end of that operation to the return.
    inferred: the operation was not recorded but concluded. bound: it ended after the call began.
    also, also_op: waits for all streams wait for what is last in each; of the others the row of the
    wait, and the operation.
    """

    span: Int
    read: Int
    op: Int
    own: Int
    back: Int
    inferred: Mask
    bound: Mask
    also: Int
    also_op: Int


def spans(timeline: Timeline, threads: Threads, reads: Reads) -> Spans:
    """The outermost calls of every thread; calls that overlap are one."""
    calls = timeline.host_calls
    polls = np.flatnonzero(reads.polling)
    start = np.concatenate([calls.start, reads.begin[polls]])
    end = np.concatenate([calls.end, reads.end[polls]])
    thread = np.concatenate([threads.of_call, reads.thread[polls]])
    row = np.concatenate([np.arange(len(calls)), reads.first[polls]])
    order = np.arange(len(calls))
    if len(polls):
        order = np.lexsort((-end, start, thread))
        start, end, thread, row = start[order], end[order], thread[order], row[order]
    opens = np.ones(len(start), np.bool_)
    reach = end.copy()
    first, length = runs(thread)
    for f, n in zip(first.tolist(), length.tolist(), strict=True):  # threads
        np.maximum.accumulate(end[f : f + n], out=reach[f : f + n])
        opens[f + 1 : f + n] = start[f + 1 : f + n] >= reach[f : f + n - 1]
    number = np.cumsum(opens) - 1
    head = np.flatnonzero(opens)
    last = np.append(head[1:], len(start)) - 1 if len(head) else head
    begin, stop = start[head], reach[last]
    gap = np.full(len(head), -1, np.int64)
    same = thread[head][1:] == thread[head][:-1]
    gap[1:][same] = (begin[1:] - stop[:-1])[same]
    of_call = np.zeros(len(calls), np.int64)
    is_call = order < len(calls)
    of_call[order[is_call]] = number[is_call]
    return Spans(thread[head], row[head], begin, stop, gap, of_call)


def waits(
    timeline: Timeline,
    launches: Launches,
    work: QueuedWork,
    found: Spans,
    reads: Reads,
    end: Int,
) -> Waits:
    """The spans that wait for an operation.

    Args:
        timeline: the recording.
        launches: which call launched which operation.
        work: what was queued when.
        found: its spans.
        reads: its blocking reads.
        end: of the operations, on the host's clock.
    """
    read = np.arange(len(reads.call))
    # A copy that blocked and the synchronise after it are one read, and both wait.
    pair = np.flatnonzero(~reads.polling & (reads.first != reads.last))
    read = np.concatenate([read, pair])
    call = np.concatenate([reads.last, reads.first[pair]])
    span = found.of_call[call]
    op = reads.op[read]
    unknown = np.flatnonzero(op < 0)
    inferred = np.zeros(len(read), np.bool_)
    op[unknown] = _ended_inside(launches, found, span[unknown], end)
    inferred[unknown] = op[unknown] >= 0
    known = np.flatnonzero(op >= 0)
    # One wait a span: of several, what ended last.
    known = known[np.lexsort((end[op[known]], span[known]))]
    last = np.append(np.diff(span[known]) > 0, True)[: len(known)]
    rows = known[last]
    span, op = span[rows], op[rows]
    begin, stop = found.begin[span], found.end[span]
    took, back = stop - begin, np.maximum(stop - end[op], 0)
    bound = end[op] > begin
    name = timeline.host_calls.name.codes[call[rows]]
    own, usual_back = took.copy(), back.copy()
    for code in np.unique(name).tolist():  # names of calls
        mine = name == code
        idle = median_ns(took[mine & ~bound])
        late = median_ns(back[mine & bound])
        # Where none returned at once, a call takes what is left of it after the work is done.
        least = back[mine] if idle is None else np.full(int(mine.sum()), idle)
        own[mine] = np.where(bound[mine], np.minimum(least, took[mine]), took[mine])
        # Where none waited: one that waits returns as soon as one that need not.
        returns = idle if late is None else late
        if returns is not None:
            usual_back[mine] = np.minimum(returns, back[mine])
    polled = reads.polling[read[rows]]
    query = (timeline.host_calls.end - timeline.host_calls.start)[call[rows]]
    own[polled] = np.minimum(query, took)[polled]
    also, also_op = _other_streams(timeline, launches, work, call[rows], op)
    return Waits(
        span,
        read[rows],
        op,
        own,
        np.where(bound, back, usual_back),
        inferred[rows],
        bound,
        also,
        also_op,
    )


def _other_streams(
    timeline: Timeline, launches: Launches, work: QueuedWork, call: Int, op: Int
) -> tuple[Int, Int]:
    """What waits for all streams wait for beside `op`: rows of `call`, and operations."""
    calls, ops = timeline.host_calls, timeline.device_ops
    rows = np.flatnonzero(for_all_streams(calls, call))
    none = np.zeros(0, np.int64)
    also, also_op = [none], [none]
    if len(rows):
        for stream in np.unique(ops.stream).tolist():
            stated = np.full(len(rows), stream)
            last = work.last_before(launches.owner[call[rows]], stated, calls.start[call[rows]])
            other = (last >= 0) & (last != op[rows])
            also.append(rows[other])
            also_op.append(last[other])
    return np.concatenate(also), np.concatenate(also_op)


def _ended_inside(launches: Launches, found: Spans, span: Int, end: Int) -> Int:
    """What a wait of unknown work waited for: what of its process ended last before it returned.

    Only what was launched before the call began and ended inside it; -1 where there is none.
    """
    result = np.full(len(span), -1, np.int64)
    owner = launches.owner[found.call[span]]
    for who in np.unique(owner).tolist():
        mine = np.flatnonzero(owner == who)
        ops = np.flatnonzero((launches.op_owner == who) & (launches.of_op >= 0))
        if not len(ops):
            continue
        ops = ops[np.argsort(end[ops], kind="stable")]
        begin, stop = found.begin[span[mine]], found.end[span[mine]]
        place = np.searchsorted(end[ops], stop, "right") - 1
        for _ in range(_TRIES):
            op = ops[np.maximum(place, 0)]
            later = (place >= 0) & (launches.begin[op] >= begin)
            place = np.where(later, place - 1, place)
        op = ops[np.maximum(place, 0)]
        fits = (place >= 0) & (launches.begin[op] < begin) & (end[op] > begin)
        result[mine] = np.where(fits, op, -1)
    return result


_TRIES = 8
"""Operations looked at, back from the last that ended, for one that was launched in time."""
