"""Synthetic recordings with known truth: say what happened when, in ns, and get a Timeline.

    trace = TraceBuilder()
    trace.launch("gemm", at=100, dur=10, start=115, run=50).sync(at=120, dur=60)
    trace.on(thread=2, stream=9).launch("side", at=130, dur=10, start=145, run=5)
    trace.timeline()

`at` and `dur` are host times of a call or range; `start` and `run` are device times of the
operation that it launches. `on` gives a view of the same recording with other defaults.
"""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any, Self

from bubblescope.timeline import (
    Device,
    DeviceOps,
    HostCalls,
    Meta,
    Ranges,
    Steps,
    Table,
    Timeline,
)

Row = dict[str, Any]
KINETO_RANGE = {
    "annotation": "user_annotation",
    "op": "cpu_op",
    "python": "python_function",
    "overhead": "overhead",
}
KINETO_SYNC = {
    "stream": "Stream Sync",
    "event": "Event Sync",
    "context": "Context Sync",
    "stream wait": "Stream Wait Event",
}
KINETO_OP = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
BASE_NS = 1_700_000_000_000_000_000


class TraceBuilder:
    """A recording in the making; every method but the last two returns the builder itself."""

    def __init__(self) -> None:
        self.ops: list[Row] = []
        self.calls: list[Row] = []
        self.ranges: list[Row] = []
        self.steps: list[Row] = []
        self.events: dict[str, Row] = {}  # label -> the call that recorded it
        self.next_correlation: dict[tuple[int, int], int] = {}
        self.rank, self.process, self.thread = 0, 4000, 4000
        self.device, self.stream = 0, 7

    def on(self, **where: int) -> Self:
        """The same recording seen from another rank, process, thread, device or stream."""
        view = copy.copy(self)  # the lists are shared
        for name, value in where.items():
            if name not in ("rank", "process", "thread", "device", "stream"):
                raise TypeError(f"no place called {name}")
            setattr(view, name, value)
        return view

    # -- host calls -----------------------------------------------------------------------

    def call(self, name: str, at: int, dur: int, **columns: Any) -> Self:
        """Any CUDA call; `columns` as in HostCalls."""
        self._call(name, at, dur, columns)
        return self

    def launch(
        self,
        name: str,
        at: int,
        dur: int,
        start: int,
        run: int,
        call: str = "cudaLaunchKernel",
        **columns: Any,
    ) -> Self:
        """A kernel and the call that launched it; `columns` as in DeviceOps."""
        self._operation("kernel", name, start, run, self._call(call, at, dur))
        self.ops[-1] |= columns
        return self

    def memset(self, at: int, dur: int, start: int, run: int) -> Self:
        """A memset and its call."""
        made = self._call("cudaMemsetAsync", at, dur)
        return self._operation("memset", "Memset (Device)", start, run, made)

    def copy(
        self,
        direction: str,
        at: int,
        dur: int,
        start: int,
        run: int,
        memory: str = "Pageable",
        call: str = "cudaMemcpyAsync",
    ) -> Self:
        """A copy: "DtoH", "HtoD" or "DtoD"; `memory` is what the host side is."""
        side = {"D": "Device", "H": memory}
        name = f"Memcpy {direction} ({side[direction[0]]} -> {side[direction[-1]]})"
        return self._operation("memcpy", name, start, run, self._call(call, at, dur))

    def graph(self, at: int, dur: int, nodes: list[tuple[Any, ...]], graph: int = -1) -> Self:
        """A replay recorded node by node.

        (name, start, run[, stream[, kind[, node id]]]) each; nodes are numbered where the graph
        has an id, unless a node says its own.
        """
        made = self._call("cudaGraphLaunch", at, dur)
        for number, (name, start, run, *more) in enumerate(nodes):
            view = self.on(stream=more[0]) if more else self
            kind = more[1] if len(more) > 1 else "kernel"
            node = more[2] if len(more) > 2 else (number if graph >= 0 else -1)
            view._operation(kind, name, start, run, made, graph=graph, node=node)
        return self

    def whole_graph(self, at: int, dur: int, start: int, run: int, graph: int = 0) -> Self:
        """A replay recorded as one block."""
        made = self._call("cudaGraphLaunch", at, dur)
        return self._operation("graph", f"graph {graph}", start, run, made, graph=graph)

    def lost(self, at: int, dur: int, call: str = "cudaLaunchKernel") -> Self:
        """A launch whose device operation is not in the recording."""
        return self.call(call, at, dur)

    def orphan(self, name: str, start: int, run: int) -> Self:
        """A kernel whose launch is not in the recording."""
        made = {"correlation": self._correlation(), "process": self.process, "rank": self.rank}
        return self._operation("kernel", name, start, run, made)

    def sync(
        self, at: int, dur: int, call: str = "cudaStreamSynchronize", row: str = "", event: str = ""
    ) -> Self:
        """A synchronise; `row` is its sync row's kind, where one was recorded."""
        more: Row = {"sync": row}
        if row == "stream":
            more["stream"] = self.stream
        if row == "event":
            more |= self._event(event)
        return self.call(call, at, dur, **more)

    def record(self, label: str, at: int, dur: int) -> Self:
        """Record an event in this stream; `label` names it in stream_wait and sync."""
        made = self._call("cudaEventRecord", at, dur)
        self.events[label] = {"event_stream": self.stream, "event_record": made["correlation"]}
        return self

    def stream_wait(self, label: str, at: int, dur: int) -> Self:
        """Make this stream wait for an event."""
        more = {"sync": "stream wait", "stream": self.stream} | self._event(label)
        return self.call("cudaStreamWaitEvent", at, dur, **more)

    def queries(self, at: int, count: int, every: int, dur: int, status: int = 0) -> Self:
        """`count` event queries, one each `every` ns; the last one returns success."""
        for i in range(count):
            last = i == count - 1
            self.call("cudaEventQuery", at + i * every, dur, status=0 if last else status)
        return self

    # -- ranges and steps -----------------------------------------------------------------

    def range(self, kind: str, name: str, at: int, dur: int) -> Self:
        """An "annotation", "op", "python" frame or "overhead" on this thread."""
        self.ranges.append(self._host(name, at, dur) | {"kind": kind})
        return self

    def overhead(self, name: str, at: int, dur: int) -> Self:
        """The profiler's own work, which names neither process nor thread."""
        nowhere = {"kind": "overhead", "process": -1, "thread": -1}
        self.ranges.append(self._host(name, at, dur) | nowhere)
        return self

    def step(self, number: int, at: int, dur: int) -> Self:
        """A step mark of the recording itself."""
        row = self._host("", at, dur) | {"number": number}
        del row["name"], row["thread"]
        self.steps.append(row)
        return self

    # -- what comes out -------------------------------------------------------------------

    def timeline(self) -> Timeline:
        """Everything said so far, as a Timeline."""
        places = sorted({(o["rank"], o["device"]) for o in self.ops})
        meta = Meta(
            source="synthetic",
            format="synthetic",
            devices=tuple(Device(r, d, "Synthetic GPU") for r, d in places),
        )
        return Timeline.of(
            meta,
            device_ops=_table(DeviceOps, self.ops),
            host_calls=_table(HostCalls, self.calls),
            ranges=_table(Ranges, self.ranges),
            steps=_table(Steps, self.steps),
        )

    def write_kineto(self, path: Path, gz: bool = False) -> Path:
        """The same recording as torch.profiler writes it: one rank, times as decimal us.

        A replay recorded whole has no Kineto event and is refused. Step marks become
        ProfilerStep annotations on the thread of this view.
        """
        ranks = {row["rank"] for row in self.ops + self.calls + self.ranges}
        if len(ranks) > 1 or any(o["kind"] == "graph" for o in self.ops):
            raise ValueError("a Kineto file holds one rank and no whole graphs")
        events = [*map(_kineto_op, self.ops), *map(_kineto_call, self.calls)]
        events += [_kineto_sync(c) for c in self.calls if c["sync"]]
        events += [_kineto_range(r) for r in self.ranges]
        events += [
            _complete(
                s, "user_annotation", f"ProfilerStep#{s['number']}", s["process"], self.thread
            )
            for s in self.steps
        ]
        devices = sorted({o["device"] for o in self.ops})
        head = {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": d, "name": "Synthetic GPU", "totalGlobalMem": 1, "numSms": 132}
                for d in devices
            ],
            "distributedInfo": {"backend": "nccl", "rank": max(ranks, default=0), "world_size": 1},
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
        }
        # Kineto prints times as text with three decimals: a float would lose nanoseconds.
        lines = ",\n".join(json.dumps(e).replace('"@', "").replace('@"', "") for e in events)
        text = f'{json.dumps(head)[:-1]},\n"traceEvents": [\n{lines}\n]}}\n'
        path.write_bytes(gzip.compress(text.encode()) if gz else text.encode())
        return path

    # -- inside ---------------------------------------------------------------------------

    def _correlation(self) -> int:
        """Ids count from 1 in each process, so those of two ranks collide, as they do."""
        key = (self.rank, self.process)
        self.next_correlation[key] = self.next_correlation.get(key, 0) + 1
        return self.next_correlation[key]

    def _host(self, name: str, at: int, dur: int) -> Row:
        place = {"rank": self.rank, "process": self.process, "thread": self.thread}
        return place | {"name": name, "start": at, "end": at + dur}

    def _call(self, name: str, at: int, dur: int, more: Row | None = None) -> Row:
        # "status" and the sync columns stay "not recorded" unless `more` says otherwise.
        ids = {"status": -1, "stream": -1, "event_stream": -1, "event_record": -1, "sync": ""}
        row = self._host(name, at, dur) | ids | {"correlation": self._correlation()} | (more or {})
        self.calls.append(row)
        return row

    def _operation(
        self, kind: str, name: str, start: int, run: int, call: Row, graph: int = -1, node: int = -1
    ) -> Self:
        self.ops.append(
            {
                "rank": call["rank"],
                "process": call["process"],
                "device": self.device,
                "stream": self.stream,
                "kind": kind,
                "name": name,
                "start": start,
                "end": start + run,
                "correlation": call["correlation"],
                "graph": graph,
                "node": node,
            }
        )
        return self

    def _event(self, label: str) -> Row:
        return dict(self.events[label])


def _table(kind: type[Table], rows: list[Row]) -> Table:
    names = {k: "" if isinstance(v, str) else -1 for r in rows for k, v in r.items()}
    return kind.build(len(rows), **{k: [r.get(k, v) for r in rows] for k, v in names.items()})


def _us(ns: int) -> str:
    """Exact decimal microseconds, marked so that they leave JSON without quotes."""
    return f"@{ns // 1000}.{ns % 1000:03d}@"


def _complete(row: Row, cat: str, name: str, pid: Any, tid: Any, **args: Any) -> Row:
    times = {"ts": _us(row["start"]), "dur": _us(row["end"] - row["start"])}
    event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid} | times
    return event | {"args": args}


def _kineto_op(o: Row) -> Row:
    args = {"device": o["device"], "stream": o["stream"], "correlation": o["correlation"]}
    made = _complete(o, KINETO_OP[o["kind"]], o["name"], o["device"], o["stream"], **args)
    if o["graph"] >= 0:
        made["args"] |= {"graph id": o["graph"], "graph node id": o["node"]}
    return made


def _kineto_call(c: Row) -> Row:
    cat = "cuda_driver" if c["name"].startswith("cu") and c["name"][2].isupper() else "cuda_runtime"
    return _complete(c, cat, c["name"], c["process"], c["thread"], correlation=c["correlation"])


def _kineto_sync(c: Row) -> Row:
    name = KINETO_SYNC[c["sync"]]
    args = {"cuda_sync_kind": name, "stream": c["stream"], "correlation": c["correlation"]}
    if c["event_record"] >= 0:
        args["wait_on_stream"] = c["event_stream"]
        args["wait_on_cuda_event_record_corr_id"] = c["event_record"]
    made = _complete(c, "cuda_sync", name, 0, c["stream"])
    made["args"] = args | {"device": 0, "context": 1}
    return made


def _kineto_range(r: Row) -> Row:
    if r["kind"] == "overhead":  # names neither process nor thread
        return _complete(r, "overhead", r["name"], -1, 0)
    return _complete(r, KINETO_RANGE[r["kind"]], r["name"], r["process"], r["thread"])
