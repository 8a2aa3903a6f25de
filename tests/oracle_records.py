"""What an obviously right reader makes of a Timeline: launches, missing records, blocking reads.

The first half of the second computation of a diagnosis (see oracle.py), in plain loops.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace

from bubblescope.timeline import Coded, Table, Timeline

COPY = re.compile(r"(cuda|cu|hip)Memcpy")
LAUNCH = re.compile(r"(cuda|cu|hip)\w*Launch\w*Kernel")
MEMSET = re.compile(r"(cuda|cu|hip)Memset")
ALLOCATOR = re.compile(r"(cuda|cu|hip)(Malloc|Free|HostAlloc|HostRegister|Mem(Alloc|Free|Create))")
SYNC = {
    f"{api}{what}Synchronize"
    for api in ("cuda", "cu", "hip")
    for what in ("Stream", "Device", "Thread", "Ctx", "Event")
}
WAITS_FOR_ALL = re.compile(r"\w*(Device|Thread|Ctx)Synchronize$")
MANY = 16  # queries in a row
WAITS = {"pthread_cond_wait", "pthread_cond_timedwait", "sem_wait", "futex"}


class Row(SimpleNamespace):
    """A row of a table: its columns as attributes, and its number as `row`."""


@dataclass
class Read:
    """One blocking read.

    back: when it returned. done: the end of the work that it waited for, where known.
    held: ns by which it, or what followed it, held up its thread's launches.
    """

    name: str
    calls: list[Row]
    begin: int
    back: int
    done: int | None
    within: tuple[str, ...]
    waited: bool = False
    held: int = 0
    exposed: int = 0
    idle_after: int = 0


def rows_of(table: Table) -> list[Row]:
    columns = {name: getattr(table, name) for name in type(table).__slots__}
    lists = {n: c.to_list() if isinstance(c, Coded) else c.tolist() for n, c in columns.items()}
    return [Row(row=i, **{n: c[i] for n, c in lists.items()}) for i in range(len(table))]


def innermost(records: list[Row], t: int) -> Row | None:
    """The record that covers instant `t` and began last; of two, the shorter."""
    covering = [r for r in records if r.start <= t < r.end]
    return max(covering, key=lambda r: (r.start, -r.end, r.row), default=None)


def plain(name: str) -> str:
    return re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", name)


def is_graph_launch(call: Row | None) -> bool:
    return call is not None and plain(call.name) in (
        "cudaGraphLaunch",
        "cuGraphLaunch",
        "hipGraphLaunch",
    )


def is_launch(call: Row) -> bool:
    return LAUNCH.match(call.name) is not None or is_graph_launch(call)


def is_numbered(replay: list[Row]) -> bool:
    return all(o.node >= 0 for o in replay)


def is_query(call: Row) -> bool:
    return re.fullmatch(r"(cuda|cu|hip)(Stream|Event)Query", plain(call.name)) is not None


class Records:
    def __init__(self, timeline: Timeline) -> None:
        self.ops = rows_of(timeline.device_ops)
        self.calls = rows_of(timeline.host_calls)
        self.ranges = rows_of(timeline.ranges)
        self.calls_of: dict[tuple[int, int, int], list[Row]] = {}
        for c in self.calls:
            self.calls_of.setdefault((c.rank, c.process, c.correlation), []).append(c)
        self.ops_of: dict[tuple[int, int, int], list[Row]] = {}
        for o in self.ops:
            if o.correlation >= 0:
                self.ops_of.setdefault((o.rank, o.process, o.correlation), []).append(o)
        for o in self.ops:
            o.launch = self.launch_of(o)
        self.lost = self.find_lost()
        self.incomplete = self.find_incomplete()
        self.reads = self.find_reads()

    # -- what was launched by what, and what is missing ---------------------------------------

    def launch_of(self, op: Row) -> Row | None:
        if op.correlation < 0:
            return None

        def rank(c: Row) -> tuple[bool, int, int]:
            named = is_launch(c) or COPY.match(c.name) or MEMSET.match(c.name)
            return (not named, c.start, c.row)

        return min(
            self.calls_of.get((op.rank, op.process, op.correlation), []), key=rank, default=None
        )

    def captured(self, call: Row) -> bool:
        """Whether the thread was capturing a graph: its launches run nothing."""
        thread = [c for c in self.calls if same_thread(c, call) and c.start < call.start]
        marks = [c for c in thread if re.search(r"Stream(Begin|End)Capture", c.name)]
        return bool(marks) and "Begin" in marks[-1].name

    def find_lost(self) -> list[Row]:
        if all(op.correlation < 0 for op in self.ops):
            return []  # the same
        known = {(c.rank, c.process) for c in self.calls}
        unowned = {(o.rank, o.correlation) for o in self.ops if (o.rank, o.process) not in known}
        return [
            c
            for c in self.calls
            if is_launch(c)
            and c.correlation >= 0  # else nothing says whether it left a record
            and (c.rank, c.process, c.correlation) not in self.ops_of
            and (c.rank, c.correlation) not in unowned
            and not self.captured(c)
            and not self.inside_another(c)
        ]

    def inside_another(self, call: Row) -> bool:
        """Whether it lies inside another launch: the driver's call that a runtime's made."""
        earlier = [c for c in self.calls if same_thread(c, call) and c.row < call.row]
        return any(is_launch(c) and c.start <= call.start and call.end <= c.end for c in earlier)

    def find_incomplete(self) -> set[tuple[int, int, int]]:
        """Keys of the replays of which operations are missing."""
        replays = {k: ops for k, ops in self.ops_of.items() if is_graph_launch(ops[0].launch)}
        missing = set()
        for key, ops in replays.items():
            graph, numbered = ops[0].graph, is_numbered(ops)
            others = [o for k, o in replays.items() if k[:2] == key[:2] and o[0].graph == graph]
            if graph >= 0:
                if len(ops) < max(map(len, others)):
                    missing.add(key)
                continue
            if numbered:
                forms = [
                    [(o.node, o.name) for o in other] for other in others if is_numbered(other)
                ]
                mine = [(o.node, o.name) for o in ops]
            else:
                forms = [[o.name for o in other] for other in others if not is_numbered(other)]
                mine = [o.name for o in ops]
            for form in forms:
                if not Counter(mine) < Counter(form):  # of multisets: contained, and not equal
                    continue
                alike = mine[0] == form[0] or mine[-1] == form[-1]
                if numbered or (alike and forms.count(form) > forms.count(mine)):
                    missing.add(key)
        return missing

    # -- blocking reads and clocks -------------------------------------------------------------

    def find_reads(self) -> list[Read]:
        reads = []
        for place in sorted({(c.rank, c.process, c.thread) for c in self.calls}):
            calls = [c for c in self.calls if (c.rank, c.process, c.thread) == place]
            ordered = [c for c in calls if COPY.match(c.name) or is_sync(c) or is_launch(c)]
            copy_before = {
                second.row: first
                for first, second in pairwise(ordered)
                if self.copy_op(first) and is_sync(second) and not self.op_between(first, second)
            }
            joined = set()
            for c in (c for c in calls if is_sync(c)):
                before = copy_before.get(c.row)
                copied = before and self.waited_for_copy(c, self.copy_op(before))
                done = max_known([self.sync_end(c), self.copy_op(before).end if copied else None])
                members = [c]
                if before and self.one_op(before, c):
                    joined.add(before.row)
                    if self.blocks(before):
                        members = [before, c]
                reads.append(self.read(members, done))
            for c in calls:
                if self.blocks(c) and c.row not in joined:
                    reads.append(self.read([c], self.copy_op(c).end))
            reads += [self.read(run, None) for run in polls(calls)]
        return outermost(reads)

    def read(self, calls: list[Row], done: int | None) -> Read:
        first, longest = calls[0], max(reversed(calls), key=lambda c: c.end - c.start)
        around = [
            r.name
            for r in self.ranges
            if same_thread(r, first)
            and r.kind in ("annotation", "op")
            and r.start <= first.start < r.end
        ]
        return Read(longest.name, calls, first.start, calls[-1].end, done, tuple(around))

    def copy_op(self, call: Row) -> Row | None:
        """The copy that a call made."""
        if not COPY.match(call.name) or call.correlation < 0:
            return None
        made = self.ops_of.get((call.rank, call.process, call.correlation), [])
        copies = [o for o in made if o.launch is call and o.kind == "memcpy"]
        return max(copies, key=lambda o: o.end, default=None)

    def blocks(self, call: Row) -> bool:
        """Whether a copy call gave the host something and waited for it, by evidence."""
        op = self.copy_op(call)
        if op is None or call.end < op.end:
            return False
        if any(word in op.name for word in ("DtoD", "Device -> Device", "PtoP", "Peer")):
            return False
        return not ("Async" in call.name and "Pinned" in op.name)

    def waited_for_copy(self, sync: Row, copy: Row) -> bool:
        """By the stream, where it is known; else the copy must not end after the call returned.

        By 20 us of skew it may, but not for an event, which can be an older one's. Where the
        event's record is known, that says all.
        """
        if "Event" in sync.name and sync.event_stream >= 0 and sync.event_record >= 0:
            return False
        stream, slack = -1, 20_000
        if "Stream" in sync.name:
            stream = sync.stream
        if "Event" in sync.name:
            stream, slack = sync.event_stream, 0
        return stream == copy.stream if stream >= 0 else copy.end <= sync.end + slack

    def op_between(self, copy: Row, sync: Row) -> bool:
        return any(copy.start < r.start < sync.start for r in self.ops_around(copy))

    def one_op(self, copy: Row, sync: Row) -> bool:
        """Whether both calls are under the same op, or under none."""
        ops = self.ops_around(copy)
        return innermost(ops, copy.start) is innermost(ops, sync.start)

    def ops_around(self, call: Row) -> list[Row]:
        return [r for r in self.ranges if r.kind == "op" and same_thread(r, call)]

    def sync_end(self, c: Row) -> int | None:
        """End of the work that a synchronise waits for, where the recording tells."""
        mine = [o for o in self.ops if o.launch and (o.rank, o.process) == (c.rank, c.process)]
        before = [o for o in mine if o.launch.start < c.start]
        ends: list[int] = []
        if WAITS_FOR_ALL.match(plain(c.name)) or c.sync == "context":
            ends += [o.end for o in before]
        if c.sync == "stream":
            ends += [o.end for o in before if o.stream == c.stream]
        if c.sync == "event":
            ends += self.ends_before_event(c)
        return max(ends, default=None)

    def ends_before_event(self, waiter: Row) -> list[int]:
        """Ends of the work that was queued in an event's stream before it was recorded."""
        recorded = self.calls_of.get((waiter.rank, waiter.process, waiter.event_record), [])
        if waiter.event_record < 0 or waiter.event_stream < 0 or not recorded:
            return []
        return [
            o.end
            for o in self.ops
            if (o.rank, o.process, o.stream) == (waiter.rank, waiter.process, waiter.event_stream)
            and o.launch
            and o.launch.start < recorded[0].start
        ]


def thread_of(row: Row) -> tuple[int, int, int]:
    return row.rank, row.process, row.thread


def same_thread(one: Row, other: Row) -> bool:
    return thread_of(one) == thread_of(other)


def is_sync(call: Row) -> bool:
    return plain(call.name) in SYNC


def is_wait(r: Row) -> bool:
    return r.name in WAITS or (r.kind == "python" and "method acquire of _thread" in r.name)


def outermost(reads: list[Read]) -> list[Read]:
    """Without those that begin while their thread is in a read already: they are part of it."""
    ordered = sorted(reads, key=lambda r: (r.begin, -r.back))
    kept = []
    for i, r in enumerate(ordered):
        earlier = [e for e in ordered[:i] if same_thread(e.calls[0], r.calls[0])]
        if not any(r.begin < e.back for e in earlier):
            kept.append(r)
    return kept


def max_known(ends: list[int | None]) -> int | None:
    return max((e for e in ends if e is not None), default=None)


def polls(calls: list[Row]) -> list[list[Row]]:
    """Runs of queries, of one name and event, no other call between, that amount to a wait."""
    runs: list[list[Row]] = []
    for previous, c in zip([None, *calls], calls, strict=False):
        if not is_query(c):
            continue
        alike = previous is not None and previous.name == c.name
        if alike and previous.event_record == c.event_record:
            runs[-1].append(c)
        else:
            runs.append([c])
    return [run for run in runs if is_poll(run)]


def is_poll(run: list[Row]) -> bool:
    """Many that were not all ready, or one that was not ready and later was, and little else."""
    if len(run) >= MANY and any(c.status != 0 for c in run):
        return True
    if 4 * sum(c.end - c.start for c in run) < run[-1].end - run[0].start:
        return False
    return any(
        early.status == 600 and late.status == 0
        for i, early in enumerate(run)
        for late in run[i + 1 :]
    )
