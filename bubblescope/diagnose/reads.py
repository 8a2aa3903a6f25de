"""Blocking reads: host calls that returned only when device work was done."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import numpy as np

from bubblescope.diagnose.launches import NEVER, Launches
from bubblescope.diagnose.work import ANY_STREAM, QueuedWork
from bubblescope.timeline import HostCalls, Timeline, api
from bubblescope.timeline.intervals import IntervalIndex, Mask, runs
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads

POLLS = 16
"""So many queries of one kind in a row are a read that polls, where it is not recorded what they
returned. Fewer are an allocator that asks after each of its pending events once."""
SPINNING = 4
"""A host that polls is inside the queries for a fourth of the time at least."""
NOT_READY = 600
"""cudaErrorNotReady, which hip shares."""
SKEW_NS = 20_000
"""Host and device clocks differ by less than this, unless records are broken."""
WAITED_NS = 10_000
"""A read is taken to have waited if it lasted longer, where its work is not known."""

_DEVICE_ONLY = re.compile(r"DtoD|PtoP|Device -> Device|Peer")
_PINNED = re.compile(r"\bPinned\b")


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """One row a blocking read, ordered by (thread, begin); no two of a thread overlap.

    call: the row of `host_calls` that names it. begin, end: when the host went in and came back.
    thread: a small id of (rank, process, thread). awaited: when the work that it waited for
    ended, in device time, NEVER where that is not known. polling: made of repeated queries.
    op: the operation (row of `device_ops`) that it waited for, -1 where that is not known.
    first, last: its calls, rows of `host_calls`. copy: the call of the copy that it waited for,
    one of its own or the one right before it; -1 where there is none.
    """

    call: Int
    begin: Int
    end: Int
    thread: Int
    awaited: Int
    polling: Mask
    op: Int
    first: Int
    last: Int
    copy: Int

    def rows(self, chosen: Int) -> Reads:
        """The reads at these places of the table."""
        return Reads(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def waited(self, shift: int) -> Mask:
        """Mask of the reads that made their thread late."""
        known = self.awaited != NEVER
        return np.where(known, self.awaited + shift > self.begin, self.end - self.begin > WAITED_NS)


def find(timeline: Timeline, launches: Launches, work: QueuedWork, threads: Threads) -> Reads:
    """Every blocking read of the timeline, by what the calls did rather than by their names."""
    calls, thread = timeline.host_calls, threads.of_call
    is_sync = calls.name.where(api.is_sync)
    is_copy = calls.name.where(api.is_copy)
    copy_op, blocks = _blocking_copies(timeline, launches, is_copy)
    copy_end = work.ends(copy_op)
    sync = np.flatnonzero(is_sync)
    copy, joined = _copy_right_before(timeline, threads, sync, is_sync | is_copy)

    op = np.where(blocks, copy_op, -1)
    op[sync] = _awaited(timeline, launches, work, sync)
    has_copy = copy >= 0
    ends = np.where(has_copy, copy_end[copy], NEVER)
    ends[~_waited_for_copy(timeline, launches, sync, copy, ends)] = NEVER
    of_copy = ends > work.ends(op[sync])
    op[sync[of_copy]] = copy_op[copy[of_copy]]
    read_copy = np.where(blocks, np.arange(len(calls)), -1)
    read_copy[sync] = np.where(ends != NEVER, copy, -1)
    awaited = work.ends(op)

    # A copy that blocked and the synchronise after it, under one op, are one read.
    one = joined & has_copy & blocks[copy]
    begin, first = calls.start.copy(), np.arange(len(calls))
    begin[sync[one]] = calls.start[copy[one]]
    first[sync[one]] = read_copy[sync[one]] = copy[one]
    names = np.arange(len(calls))
    longer = (calls.end - calls.start)[copy] > (calls.end - calls.start)[sync]
    names[sync[one & longer]] = copy[one & longer]
    is_read = is_sync | blocks
    is_read[copy[one]] = False
    row = np.flatnonzero(is_read)

    poll_first, poll_last = _polls(calls, thread)
    unknown = np.full(len(poll_first), -1, np.int64)
    polling = np.arange(len(row) + len(poll_first)) >= len(row)
    parts = Reads(
        call=np.concatenate([names[row], poll_first]),
        begin=np.concatenate([begin[row], calls.start[poll_first]]),
        end=np.concatenate([calls.end[row], calls.end[poll_last]]),
        thread=np.concatenate([thread[row], thread[poll_first]]),
        awaited=np.concatenate([awaited[row], np.full(len(poll_first), NEVER, np.int64)]),
        polling=polling,
        op=np.concatenate([op[row], unknown]),
        first=np.concatenate([first[row], poll_first]),
        last=np.concatenate([row, poll_last]),
        copy=np.concatenate([read_copy[row], unknown]),
    )
    return _outermost(parts)


def _outermost(reads: Reads) -> Reads:
    """In order, without the reads inside others (the driver's call within the runtime's)."""
    order = np.lexsort((-reads.end, reads.begin, reads.thread))
    begin, end, thread = reads.begin[order], reads.end[order], reads.thread[order]
    keep = np.ones(len(order), np.bool_)
    first, length = runs(thread)
    for f, n in zip(first.tolist(), length.tolist(), strict=True):  # threads, not reads
        reach = np.maximum.accumulate(end[f : f + n])
        keep[f + 1 : f + n] = begin[f + 1 : f + n] >= reach[:-1]
    return reads.rows(order[keep])


def _blocking_copies(timeline: Timeline, launches: Launches, is_copy: Mask) -> tuple[Int, Mask]:
    """Each copy call's copy that ended last (-1: no record), and which calls waited for it.

    A copy between host and device is a blocking read if its call returned at or after the copy's
    end. An asynchronous one from or to pinned memory never waits, however soon the copy is done.
    """
    ops, calls = timeline.device_ops, timeline.host_calls
    copy_op = np.full(len(calls), -1, np.int64)
    copies = np.flatnonzero(ops.kind.where(lambda kind: kind == "memcpy") & (launches.of_op >= 0))
    copies = copies[np.argsort(ops.end[copies], kind="stable")]
    copy_op[launches.of_op[copies]] = copies  # of several the last one stays
    copy_end = np.full(len(calls), NEVER, np.int64)
    copy_end[launches.of_op[copies]] = ops.end[copies]
    host_side = ops.name.where(lambda name: not _DEVICE_ONLY.search(name))[copies]
    pinned = ops.name.where(lambda name: bool(_PINNED.search(name)))[copies]
    may_wait = np.zeros(len(calls), np.bool_)
    asynchronous = calls.name.where(api.is_async_copy)
    waits = host_side & ~(pinned & asynchronous[launches.of_op[copies]])
    may_wait[launches.of_op[copies][waits]] = True
    return copy_op, is_copy & may_wait & (copy_op >= 0) & (calls.end >= copy_end)


def _waited_for_copy(
    timeline: Timeline, launches: Launches, sync: Int, copy: Int, ends: Int
) -> Mask:
    """Which synchronises waited for the copy right before them, as far as can be told.

    One whose stream is known waited for it if that is the copy's. Of the others, one that
    returned before the copy's end cannot have: by more than skew, or, for an event, which may be
    an older one, at all. An event whose record is known says itself what it waited for.
    """
    ops, calls = timeline.device_ops, timeline.host_calls
    copied = np.flatnonzero(ops.kind.where(lambda k: k == "memcpy") & (launches.of_op >= 0))
    copy_stream = np.full(len(calls), -1, np.int64)
    copy_stream[launches.of_op[copied]] = ops.stream[copied]
    by_event = calls.name.take(sync).where(lambda n: "Event" in n)
    by_stream = calls.name.take(sync).where(lambda n: "Stream" in n)
    stream = np.where(
        by_event, calls.event_stream[sync], np.where(by_stream, calls.stream[sync], -1)
    )
    slack = np.where(by_event, 0, SKEW_NS)
    recorded = by_event & (calls.event_stream[sync] >= 0) & (calls.event_record[sync] >= 0)
    return (
        (copy >= 0)
        & ~recorded
        & np.where(stream >= 0, stream == copy_stream[copy], ends - slack <= calls.end[sync])
    )


def _copy_right_before(
    timeline: Timeline, threads: Threads, sync: Int, reads_or_copies: Mask
) -> tuple[Int, Mask]:
    """The copy call that comes right before each synchronise on its thread, -1 where none does.

    Right before: no other copy, synchronise or launch, and no op begun, in between. The mask says
    where both also lie under the same innermost op (or both under none).
    """
    calls, ranges, thread = timeline.host_calls, timeline.ranges, threads.of_call
    launch = calls.name.where(lambda n: api.is_kernel_launch(n) or api.is_graph_launch(n))
    is_copy = calls.name.where(api.is_copy)
    marked = np.flatnonzero(reads_or_copies | launch)
    before = np.searchsorted(marked, sync, "left") - 1
    row = np.where(before >= 0, marked[before], 0) if len(marked) else np.zeros(len(sync), np.int64)
    found = (before >= 0) & is_copy[row] & (thread[row] == thread[sync])
    same_op = np.ones(len(sync), np.bool_)
    op_rows = ranges.kind.where(lambda kind: kind == "op")
    for number in np.unique(thread[sync[found]]).tolist():
        mine = np.flatnonzero(found & (thread[sync] == number))
        rows = threads.ranges(number)
        ops = op_rows[rows]
        index = IntervalIndex(ranges.start[rows][ops], ranges.end[rows][ops])
        first, second = calls.start[row[mine]], calls.start[sync[mine]]
        begun = np.searchsorted(index.start, second, "left") - np.searchsorted(
            index.start, first, "right"
        )
        found[mine] = begun <= 0
        same_op[mine] = index.innermost(first) == index.innermost(second)
    return np.where(found, row, -1), same_op & found


def _awaited(timeline: Timeline, launches: Launches, work: QueuedWork, sync: Int) -> Int:
    """What ended last of the work that each synchronise waited for; -1 where not recorded."""
    calls = timeline.host_calls
    owner, begin = launches.owner[sync], calls.start[sync]
    kind = calls.sync.take(sync)
    awaited = np.full(len(sync), -1, np.int64)
    by_stream = kind.where(lambda k: k == "stream") & (calls.stream[sync] >= 0)
    awaited[by_stream] = work.last_before(
        owner[by_stream], calls.stream[sync[by_stream]], begin[by_stream]
    )
    by_event = kind.where(lambda k: k == "event") & (calls.event_record[sync] >= 0)
    awaited[by_event] = work.before_event(sync[by_event])
    everything = for_all_streams(calls, sync)
    awaited[everything] = work.last_before(
        owner[everything], np.full(int(everything.sum()), ANY_STREAM), begin[everything]
    )
    return awaited


def for_all_streams(calls: HostCalls, rows: Int) -> Mask:
    """Which of these calls wait for the work of every stream: device and context synchronises."""
    return calls.name.take(rows).where(
        lambda n: api.is_sync(n) and re.search(r"Device|Thread|Ctx", n) is not None
    ) | calls.sync.take(rows).where(lambda k: k == "context")


def _polls(calls: HostCalls, thread: Int) -> tuple[Int, Int]:
    """First and last row of each run of queries of one event that amounts to a wait.

    A wait ends when what was not ready is, and the host does little else until then, or it goes on
    for long. An allocator asks after events as well, of several in turn, and goes on with other
    things while they are not ready.
    """
    query = calls.name.where(api.is_query)
    first, length = runs(thread, calls.name.codes, query, calls.event_record)
    last = first + length - 1
    run = np.repeat(np.arange(len(first)), length)
    failed = np.concatenate([[0], np.cumsum(calls.status == NOT_READY)])
    failed_before = failed[:-1] - np.repeat(failed[first], length)
    became_ready = _any(run, (calls.status == 0) & (failed_before > 0), len(first))
    unready = _any(run, calls.status != 0, len(first))
    asked = np.concatenate([[0], np.cumsum(calls.end - calls.start)])
    spins = SPINNING * (asked[last + 1] - asked[first]) >= calls.end[last] - calls.start[first]
    poll = query[first] & np.where(length >= POLLS, unready, became_ready & spins)
    return first[poll], last[poll]


def _any(run: Int, mask: Mask, count: int) -> Mask:
    """Whether the mask holds in any row of each run."""
    found = np.zeros(count, np.bool_)
    found[run[mask]] = True
    return found
