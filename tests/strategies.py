"""hypothesis strategies for recordings: what hosts and devices could do, and what they could not.

A recording is drawn as a list of small tuples of integers, each read as one act of one host
thread, so that a failing example shrinks to a few acts with small numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from bubblescope.timeline import DeviceOps, HostCalls, Meta, Ranges, Timeline
from tests.synthetic import TraceBuilder

SMALL = st.integers(0, 40)
# (rank, process, thread, device): mostly one thread; two ranks share ids, one process has two
# threads and devices, and another process works on one of its devices.
PLACES = [
    *[(0, 100, 1, 0)] * 6,
    *[(0, 100, 2, 0)] * 2,
    (0, 100, 1, 1),
    (1, 100, 1, 0),
    (0, 200, 1, 1),
]
SYNCS = [
    ("cudaStreamSynchronize", ""),
    ("cudaStreamSynchronize", "stream"),
    ("cudaDeviceSynchronize", ""),
    ("cudaEventSynchronize", "event"),
    ("cuCtxSynchronize", "context"),
    ("hipStreamSynchronize", "stream"),
]
COPIES = [
    ("DtoH", "Pageable", "cudaMemcpyAsync"),
    ("HtoD", "Pageable", "cudaMemcpyAsync"),
    ("DtoH", "Pinned", "cudaMemcpyAsync"),
    ("DtoH", "Pinned", "cudaMemcpy"),
    ("DtoD", "", "cudaMemcpyAsync"),
    ("DtoD", "", "cudaMemcpy"),
    ("DtoH", "Pageable", "hipMemcpyWithStream"),
]
OTHERS = ["cudaMalloc", "cudaDeviceGetAttribute", "cudaFree", "cuStreamSynchronize"]
LOCK = "<built-in method acquire of _thread.lock object at 0x7ce286400000>"
RANGES = [
    ("op", "aten::item"),
    ("op", "aten::copy_"),
    ("annotation", "mark"),
    ("annotation", "draft"),
    ("python", "f.py(3): f"),
    ("python", LOCK),
    ("overhead", "Activity Buffer Request"),
    ("annotation", "pthread_cond_wait"),
]


class Act(NamedTuple):
    """What one thread does next: all but the kind are small numbers, read by each kind as fits."""

    kind: str
    place: int
    pause: int
    long: int
    wait: int
    run: int
    odd: int


class Script:
    """Plays acts one after the other, as the threads and streams of a machine would do them."""

    def __init__(self, unit: int, busy: bool) -> None:
        self.unit, self.busy = unit, busy
        self.trace = TraceBuilder()
        self.now: dict[tuple[int, ...], int] = {}  # of each thread
        self.free: dict[tuple[int, ...], int] = {}  # of each stream
        self.labels: dict[tuple[int, int], list[str]] = {}

    def play(self, a: Act) -> None:
        rank, process, thread, device = PLACES[a.place % len(PLACES)]
        stream = (7, 9)[a.odd % 2]
        self.me = self.trace.on(
            rank=rank, process=process, thread=thread, device=device, stream=stream
        )
        who, where = (rank, process, thread), (rank, device, stream)
        self.at = self.now.get(who, 0) + a.pause * self.unit
        self.dur = a.long * self.unit
        self.run = a.run * self.unit
        self.start = max(self.at + a.wait * self.unit, self.free.get(where, 0))
        self.start += 0 if self.busy else a.odd // 2 * self.unit
        self.done = max((t for w, t in self.free.items() if w[0] == rank), default=self.at)
        self.end = self.start + self.run  # of what is launched, where anything is
        if getattr(self, a.kind)(a):
            self.free[where] = max(self.free.get(where, 0), self.end)
        self.now[who] = max(self.now.get(who, 0), self.at + self.dur)

    def kernel(self, a: Act) -> bool:
        self.me.launch("abcde"[a.odd % 5], self.at, self.dur, self.start, self.run)
        return True

    def graph(self, a: Act) -> bool:
        names = ("abcb", "abcb", "abc", "bcb", "ab")[a.wait % 5]
        nodes: list[tuple[Any, ...]] = []
        for i, name in enumerate(names):
            stream = 13 if i % 3 == 2 else self.me.stream
            node = (-1, i)[a.long % 2]
            nodes.append((name, self.start, self.run, stream, "kernel", node))
            self.start += self.run + (a.odd + i) % 3 * self.unit
        self.me.graph(self.at, self.dur, nodes, graph=(-1, -1, 3)[a.odd % 3])
        self.end = self.start
        return True

    def whole_graph(self, a: Act) -> bool:
        self.me.whole_graph(self.at, self.dur, self.start, self.run, graph=a.wait % 2)
        return True

    def copy(self, a: Act) -> bool:
        direction, memory, call = COPIES[a.long % len(COPIES)]
        if a.odd % 3:  # returns when it is done, or a little after
            self.dur = max(0, self.end - self.at) + a.odd // 3 % 3 * self.unit
        self.me.copy(direction, self.at, self.dur, self.start, self.run, memory=memory, call=call)
        return True

    def memset(self, a: Act) -> bool:
        self.me.memset(self.at, self.dur, self.start, self.run)
        return True

    def sync(self, a: Act) -> None:
        call, row = SYNCS[a.wait % len(SYNCS)]
        events = self.labels.get((self.me.rank, self.me.process), [])
        if row == "event" and not events:
            row = ""
        if a.odd % 3:
            self.dur = max(0, self.done - self.at) + a.odd // 3 % 3 * self.unit
        event = events[a.run % len(events)] if row == "event" else ""
        self.me.sync(self.at, self.dur, call, row, event)

    def read_back(self, a: Act) -> bool:
        """A copy to the host, then a synchronise, under one op or not."""
        begin = self.at
        self.copy(a)
        self.at += self.dur + a.pause % 3 * self.unit
        self.done = self.end
        self.dur = max(0, self.done - self.at) + a.run % 3 * self.unit
        self.me.sync(self.at, self.dur)
        if a.wait % 3:
            long = (self.at + self.dur - begin, a.long * self.unit)[a.wait % 2]
            self.me.range("op", "aten::item", begin, long + 1)
        return True

    def record(self, a: Act) -> None:
        label = f"{self.me.rank} {self.me.process} {len(self.me.events)}"
        self.me.record(label, self.at, self.dur)
        self.labels.setdefault((self.me.rank, self.me.process), []).append(label)

    def stream_wait(self, a: Act) -> None:
        events = self.labels.get((self.me.rank, self.me.process), [])
        if events:
            self.me.stream_wait(events[a.wait % len(events)], self.at, self.dur)

    def await_device(self, a: Act) -> bool:
        """Long work on another device, and a kernel here that waits for it."""
        other = self.me.on(device=2, stream=20)
        other.launch("far", self.at, self.unit, self.at + self.unit, self.run * 4)
        self.at += self.unit
        other.record(f"far {len(self.me.events)}", self.at, 0)
        self.me.stream_wait(f"far {len(self.me.events) - 1}", self.at, 0)
        self.at += self.unit
        far = other.ops[-1]["end"]
        self.start = max(self.start, self.at, far + (a.odd % 4 - 1) * self.unit)
        self.end = self.start + self.run
        return self.kernel(a)

    def queries(self, a: Act) -> None:
        count, every = 1 + a.wait % 20, self.dur + a.pause * self.unit
        self.me.queries(self.at, count, every, self.dur, (-1, 600)[a.odd % 2])
        self.at += (count - 1) * every

    def lost(self, a: Act) -> None:
        calls = ("cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync")
        self.me.lost(self.at, self.dur, calls[a.wait % 3])

    def capture(self, a: Act) -> None:
        """A graph is captured: launches that run nothing."""
        begin = self.at
        for call in ("cudaStreamBeginCapture", "cudaLaunchKernel", "cudaStreamEndCapture"):
            self.me.call(call, self.at, self.dur)
            self.at += self.dur + 1
        self.at, self.dur = begin, self.at - begin

    def orphan(self, a: Act) -> bool:
        self.me.orphan("orphan", self.start, self.run)
        return True

    def other(self, a: Act) -> None:
        self.me.call(OTHERS[a.wait % len(OTHERS)], self.at, self.dur)

    def same_id(self, a: Act) -> None:
        """Another call that shares the id of a launch, as a driver's may."""
        op = self.me.ops[-1 - a.odd % len(self.me.ops)]
        me = self.me.on(rank=op["rank"], process=op["process"])
        name = ("cuLaunchKernel", "cudaGetLastError")[a.wait % 2]
        me.call(name, self.at, self.dur, correlation=op["correlation"])

    def inside(self, a: Act) -> None:
        """A call inside the last one."""
        outer = self.me.calls[-1]
        self.me = self.me.on(rank=outer["rank"], process=outer["process"], thread=outer["thread"])
        self.at = min(outer["start"] + a.pause, outer["end"])
        self.dur = min(self.dur, outer["end"] - self.at)
        self.other(a)
        self.at = self.dur = 0

    def span(self, kind: int, place: int, at: int, dur: int, tens: int) -> None:
        rank, process, thread, _ = PLACES[place % len(PLACES)]
        me = self.trace.on(rank=rank, process=process, thread=thread)
        at, dur = (5 * tens + at) * self.unit, dur * self.unit
        if RANGES[kind][0] == "overhead":
            me.overhead(RANGES[kind][1], at, dur)
        else:
            me.range(*RANGES[kind], at, dur)


ACTS = [
    *["kernel", "read_back", "sync", "graph", "await_device"] * 3,
    *["copy", "queries", "other"] * 2,
    *[
        "whole_graph",
        "memset",
        "record",
        "stream_wait",
        "lost",
        "capture",
        "orphan",
        "same_id",
        "inside",
    ],
]
ACT = st.builds(Act, st.sampled_from(ACTS), *[SMALL] * 6)
SPAN = st.tuples(st.integers(0, 7), *[SMALL] * 4)


def record(
    unit: int, busy: bool, acts: list[Act], spans: list[Any], skew: int, marked: bool = False
) -> Timeline:
    """Play the acts in order; then move the device's clock by `skew`."""
    script = Script(unit, busy)
    script.play(Act("kernel", 0, 0, 1, 2, 1, 0))  # there is always something to diagnose
    if marked:
        script.span(2, 0, 0, 2, 0)
    for act in acts:
        script.play(act)
    for span in spans:
        script.span(*span)
    for op in script.trace.ops:
        op["start"] += skew
        op["end"] += skew
    return script.trace.timeline()


def recordings(marked: bool = False) -> st.SearchStrategy[Timeline]:
    """Threads call, streams run in order; sometimes the clocks are off."""
    return st.builds(
        record,
        unit=st.sampled_from([1, 1_000, 3_001]),
        busy=st.booleans(),
        acts=st.lists(ACT, max_size=20),
        spans=st.lists(SPAN, max_size=8),
        skew=st.sampled_from([0, 0, 0, 0, 0, -9_000, 9_000, -150_000, 3, -3]),
        marked=st.just(marked),
    )


def _columns(rows: list[tuple[Any, ...]], *names: str) -> dict[str, list[int]]:
    columns = {n: [r[i] for r in rows] for i, n in enumerate(names)}
    columns["end"] = [s + e for s, e in zip(columns["start"], columns["end"], strict=True)]
    return columns


FEW = st.sampled_from([0, 0, 0, 1])
IDS = st.sampled_from([0, 1, 2, 3, 4, 5, -1])
CALLS = [
    *("cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaStreamSynchronize") * 3,
    *("cuMemcpyDtoH_v2", "cudaEventQuery", "cudaMalloc", "cudaStreamWaitEvent"),
]
SYNC_ROWS = ["", "stream", "event", "context", "stream wait"]
OP_COLUMNS = ("rank", "process", "device", "stream", "start", "end", "correlation", "graph", "node")
OP = st.tuples(
    st.sampled_from(["kernel", "memcpy"]),
    st.sampled_from(["a", "b", "Memcpy DtoH (Device -> Pageable)"]),
    *(FEW, FEW, FEW, FEW, st.integers(0, 99), SMALL, IDS, IDS, IDS),
)
THREAD = ("rank", "process", "thread", "start", "end")
CALL_COLUMNS = (*THREAD, "correlation", "status", "stream", "event_stream")
CALL = st.tuples(
    st.sampled_from(CALLS),
    st.sampled_from(SYNC_ROWS),
    *(FEW, FEW, FEW, SMALL, SMALL, IDS, st.sampled_from([-1, 0, 600]), FEW, FEW),
)


def jumble(ops: list[Any], calls: list[Any], spans: list[Any]) -> Timeline:
    """Rows as they come: (kind, name), (name, sync) or (kind, name), then the integers."""
    return Timeline.of(
        Meta("nonsense", "synthetic"),
        device_ops=DeviceOps.build(
            len(ops),
            kind=[o[0] for o in ops],
            name=[o[1] for o in ops],
            **_columns([o[2:] for o in ops], *OP_COLUMNS),
        ),
        host_calls=HostCalls.build(
            len(calls),
            name=[c[0] for c in calls],
            sync=[c[1] for c in calls],
            **_columns([c[2:] for c in calls], *CALL_COLUMNS),
        ),
        ranges=Ranges.build(
            len(spans),
            kind=[s[0][0] for s in spans],
            name=[s[0][1] for s in spans],
            **_columns([s[1:] for s in spans], *THREAD),
        ),
    )


def nonsense() -> st.SearchStrategy[Timeline]:
    """Rows of any times and ids, calls that cross, many operations a call: nothing may break."""
    return st.builds(
        jumble,
        ops=st.lists(OP, min_size=1, max_size=12),
        calls=st.lists(CALL, max_size=12),
        spans=st.lists(st.tuples(st.sampled_from(RANGES), FEW, FEW, FEW, SMALL, SMALL), max_size=5),
    )
