"""The diagnosis a second time: slow, in plain loops over integers, and obviously right.

It shares nothing with `bubblescope.diagnose` but the names of the parts, so that agreement to
the nanosecond means something. Every rule is written as the design words it, without indexes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from bubblescope.diagnose.model import Doing, Part
from bubblescope.timeline import Timeline
from tests.oracle_records import (
    ALLOCATOR,
    Read,
    Records,
    Row,
    innermost,
    is_graph_launch,
    is_wait,
    same_thread,
)

HOST_LATE = (Part.READ_TAIL, Part.HOST_GAP, Part.LAUNCH_CALL)
CLOCK_LIMIT = 20_000
BRIEF = 10_000


@dataclass
class Piece:
    start: int
    end: int
    part: Part
    doing: Doing = Doing.NOT_RECORDED
    owner: Row | None = None


@dataclass
class Bubble:
    start: int
    end: int
    op: Row
    launch: Row | None
    rule: int = 0
    pieces: list[Piece] = field(default_factory=list)


@dataclass
class DeviceTruth:
    rank: int
    device: int
    ops: list[Row]
    start: int
    end: int
    busy: int
    overlapped: int
    opaque: int
    bubbles: list[Bubble]

    def parts(self, start: int | None = None, end: int | None = None) -> dict[Part, int]:
        """Time in each part between two instants (the whole window if not given)."""
        a = self.start if start is None else start
        b = self.end if end is None else end
        total = dict.fromkeys(Part, 0)
        for bubble in self.bubbles:
            for p in bubble.pieces:
                total[p.part] += max(0, min(p.end, b) - max(p.start, a))
        return total


def union(ops: list[Row]) -> int:
    """Length of the union of intervals."""
    total, reached = 0, None
    for start, end in sorted((o.start, o.end) for o in ops):
        if reached is None or start > reached:
            total, reached = total + end - start, end
        elif end > reached:
            total, reached = total + end - reached, end
    return total


def solve(timeline: Timeline) -> Oracle:
    """Everything that can be told of `timeline`."""
    return Oracle(timeline)


class Oracle(Records):
    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline)
        self.bound_clocks()
        for r in self.reads:
            known = r.done is not None
            r.waited = r.done + self.shift > r.begin if known else r.back - r.begin > BRIEF
        self.devices = [
            self.device([o for o in self.ops if (o.rank, o.device) == place])
            for place in sorted({(o.rank, o.device) for o in self.ops})
        ]
        self.part_late_starts()
        self.charge()

    def bound_clocks(self) -> None:
        lows = [o.launch.start - o.start for o in self.ops if o.launch]
        highs = [r.back - r.done for r in self.reads if r.done is not None]
        self.low, self.high = max(lows, default=None), min(highs, default=None)
        low = self.low if self.low is not None else -(10**30)
        high = self.high if self.high is not None else 10**30
        self.shift, self.broken = 0, False
        if low <= 0 <= high:
            return
        nearest = low if low > 0 else high
        if low <= high and abs(nearest) <= CLOCK_LIMIT:
            self.shift = nearest
        else:
            self.broken = True

    # -- bubbles and their parts ---------------------------------------------------------------

    def device(self, ops: list[Row]) -> DeviceTruth:
        start, end, busy = ops[0].start, max(o.end for o in ops), union(ops)
        reached, gaps = start, []
        # In canonical order the first of those that start at b is met first. An operation of no
        # length inside a gap ends one bubble there and begins the next.
        for o in ops:
            if o.start > reached:
                gaps.append((reached, o))
            reached = max(reached, o.end)
        bubbles = [Bubble(a, n.start, n, n.launch) for a, n in gaps]
        for bubble in bubbles:
            self.split(bubble, ops)
        overlapped = sum(o.end - o.start for o in ops) - busy
        opaque = union([o for o in ops if o.kind == "graph"])
        place = (ops[0].rank, ops[0].device)
        return DeviceTruth(*place, ops, start, end, busy, overlapped, opaque, bubbles)

    def split(self, bubble: Bubble, ops: list[Row]) -> None:
        a, b, n, launch = bubble.start, bubble.end, bubble.op, bubble.launch
        ended = [o for o in ops if o.end == a and o.launch]
        before = max(ended, key=lambda o: o.launch.start, default=None)
        if launch is None or self.missing(n, before):
            bubble.rule, bubble.pieces = 1, [Piece(a, b, Part.UNKNOWN)]
            return
        siblings = self.ops_of[(n.rank, n.process, n.correlation)]
        first = next(o for o in siblings if o.device == n.device)
        if is_graph_launch(launch) and n is not first:
            bubble.rule, bubble.pieces = 2, [Piece(a, b, Part.GRAPH_GAP)]
        elif self.broken and n.start < launch.start:
            bubble.rule, bubble.pieces = 5, [Piece(a, b, Part.UNRESOLVED)]
        elif launch.end <= a + self.shift:
            bubble.rule = 3
            x = min(max(a, self.wait_end(n, ops)), b)
            bubble.pieces = tiles((a, x, Part.STREAM_WAIT), (x, b, Part.DEVICE_GAP))
        else:
            bubble.rule = 4
            l0, l1 = launch.start - self.shift, launch.end - self.shift
            x = min(max(a, l0), b)
            y = min(b, max(l1, x))
            bubble.pieces = self.host_part(a, x, launch)
            bubble.pieces += tiles((x, y, Part.LAUNCH_CALL), (y, b, Part.LAUNCH_LATENCY))

    def missing(self, n: Row, before: Row | None) -> bool:
        """Whether records are known to be missing around the bubble that `n` ends."""
        for o in (n, before):
            if o is not None and (o.rank, o.process, o.correlation) in self.incomplete:
                return True
        return before is not None and any(
            before.launch.start < c.start < n.launch.start
            for c in self.lost
            if (c.rank, c.process) == (n.rank, n.process)
        )

    def wait_end(self, n: Row, ops: list[Row]) -> int:
        """End of the work before the events that n's stream was told to wait for, for n."""
        earlier = [o for o in ops if o.stream == n.stream and o.row < n.row]
        since = earlier[-1].launch.start if earlier and earlier[-1].launch else -(10**30)
        ends = [
            end
            for w in self.calls
            if w.sync == "stream wait"
            and (w.rank, w.process, w.stream) == (n.rank, n.process, n.stream)
            and since < w.start < n.launch.start
            for end in self.ends_before_event(w)
        ]
        return max(ends, default=-(10**30))

    def host_part(self, a: int, x: int, launch: Row) -> list[Piece]:
        """[a, x) by what the launching thread was doing, one piece for each change of it."""
        h0, h1 = a + self.shift, x + self.shift
        calls = [c for c in self.calls if same_thread(c, launch) and c.start < h1 and c.end > h0]
        mine = [r for r in self.ranges if r.rank == launch.rank and r.start < h1 and r.end > h0]
        overheads = [r for r in mine if r.kind == "overhead"]
        ranges = [r for r in mine if r.kind != "overhead" and same_thread(r, launch)]
        reading = [Row(row=i, start=r.begin, end=r.back) for i, r in enumerate(self.reads)]
        reading = [r for r in reading if same_thread(self.reads[r.row].calls[0], launch)]
        records = calls + overheads + ranges + reading
        cuts = {t for r in records for t in (r.start, r.end) if h0 < t < h1} | {h0, h1}
        pieces = []
        for t, until in pairwise(sorted(cuts)):
            part, doing, owner = Part.HOST_GAP, Doing.NOT_RECORDED, innermost(ranges, t)
            if innermost(reading, t):
                part, owner = Part.READ_TAIL, innermost(reading, t)
            elif owner and is_wait(owner):
                part = Part.HOST_WAIT
            elif innermost(calls, t):
                owner = innermost(calls, t)
                doing = Doing.ALLOCATOR if ALLOCATOR.match(owner.name) else Doing.CUDA_CALL
            elif innermost(overheads, t):
                owner, doing = innermost(overheads, t), Doing.PROFILER
            elif owner:
                doing = Doing[owner.kind.upper()]
            pieces.append(Piece(t - self.shift, until - self.shift, part, doing, owner))
        return pieces

    def part_late_starts(self) -> None:
        """What was ready and yet started absurdly late did not idle: something is missing."""
        for part in (Part.DEVICE_GAP, Part.LAUNCH_LATENCY):
            found = [
                p
                for d in self.devices
                for b in d.bubbles
                for p in b.pieces
                if p.part == part
                and not (part == Part.LAUNCH_LATENCY and "GraphLaunch" in b.launch.name)
            ]
            lengths = sorted(p.end - p.start for p in found)
            middles = (
                lengths[(len(lengths) - 1) // 2] + lengths[len(lengths) // 2] if lengths else 0
            )
            for p in found:
                length = p.end - p.start
                if length > 100_000 and 2 * length > 50 * middles:
                    p.part = Part.UNKNOWN

    # -- the price of reads --------------------------------------------------------------------

    def charge(self) -> None:
        for bubble in (b for d in self.devices for b in d.bubbles if b.rule == 4):
            launch = bubble.launch
            mine = [r for r in self.reads if r.waited and same_thread(r.calls[0], launch)]
            # A read makes later launches late, not the one that it is itself.
            before = [r for r in mine if r.back <= launch.start]
            if before:
                known = (p for p in bubble.pieces if p.part != Part.UNKNOWN)
                before[-1].idle_after += sum(p.end - p.start for p in known)
            for p in bubble.pieces:
                if p.part in HOST_LATE:
                    self.hold(before, p.start + self.shift, p.end + self.shift)
        for r in self.reads:  # its debt is spent in time order: the first `back - begin` ns
            r.exposed = min(r.held, r.back - r.begin)

    def hold(self, reads: list[Read], start: int, end: int) -> None:
        """Each ns of [start, end) of host time belongs to the latest read begun by then."""
        cuts = sorted({start, end} | {r.begin for r in reads if start < r.begin < end})
        for t, until in pairwise(cuts):
            begun = [r for r in reads if r.begin <= t]
            if begun:
                begun[-1].held += until - t


def steps(device: DeviceTruth, marks: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """[start, end) of each step on `device`, from marks: (rank, process, host time) each.

    Where work ran before the first mark's, the first is a lead-in, cut by the recording's start.
    None where it cannot be said: no work is any mark's, or that of a later mark began first.
    """
    firsts: dict[int, Row] = {}
    for o in device.ops:
        here = [
            (t, i)
            for i, (rank, process, t) in enumerate(marks)
            if o.launch and (rank, process) == (o.rank, o.process) and t <= o.launch.start
        ]
        if here:
            firsts.setdefault(max(here)[1], o)
    begins = []
    for _, o in sorted(firsts.items()):
        ended = [b.start for b in device.bubbles if b.op is o]
        begins.append(ended[0] if ended else o.start)
    if begins != sorted(begins):  # one stream overtook another: steps do not follow each other
        return []
    if begins and begins[0] > device.start:
        begins.insert(0, device.start)
    return list(pairwise([*begins, device.end])) if begins else []


def tiles(*pieces: tuple[int, int, Part]) -> list[Piece]:
    return [Piece(s, e, part) for s, e, part in pieces if e > s]
