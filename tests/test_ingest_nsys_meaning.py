"""What rows of an Nsight Systems export mean: annotations, waits, copies, overhead, call chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Part
from bubblescope.ingest import load
from bubblescope.timeline import Timeline
from tests.nsys_export import (
    EVENT,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    NO_ID,
    RUNTIME,
    SYNC,
    Row,
    Strings,
    Tables,
    export,
    pid,
    tid,
    write,
)
from tests.synthetic import TraceBuilder

ME = tid(4000, 4000)


def two_kernels() -> Tables:
    """A launch [100,110) of [200,300), another [500,520) of [600,700): a bubble of 300."""
    trace = TraceBuilder()
    trace.launch("k", at=100, dur=10, start=200, run=100)
    trace.launch("k", at=500, dur=20, start=600, run=100)
    return export(trace.timeline())


def read(tmp_path: Path, tables: Tables) -> Timeline:
    return load(write(tmp_path / "a.sqlite", tables))


def spans(timeline: Timeline) -> list[tuple[str, str, int, int]]:
    """Kind, name, start and end of each range."""
    r = timeline.ranges
    return list(
        zip(r.kind.to_list(), r.name.to_list(), r.start.tolist(), r.end.tolist(), strict=True)
    )


# NVTX ------------------------------------------------------------------------------------------


def nvtx(**columns: Any) -> Row:
    return {"start": 10, "end": 20, "eventType": 59, "globalTid": ME, "domainId": 0} | columns


@pytest.mark.parametrize("kind", [59, 60, 70, 71])
def test_push_pop_and_start_end_ranges(kind: int, tmp_path: Path) -> None:
    tables = two_kernels()
    tables["NVTX_EVENTS"] = [
        nvtx(text="step", eventType=kind, endGlobalTid=tid(4000, 9)),
        nvtx(text="a mark", eventType=34, end=None),
        nvtx(text="a category", eventType=33, end=None),
    ]
    assert spans(read(tmp_path, tables)) == [("annotation", "step", 10, 20)]


def test_types_are_what_the_export_says(tmp_path: Path) -> None:
    tables = two_kernels()
    tables["ENUM_NSYS_EVENT_TYPE"] = [
        {"id": 160, "name": "NvtxPushPopRange", "label": "NvtxPushPopRange"},
        {"id": 161, "name": "NvtxMark", "label": "NvtxMark"},
    ]
    tables["NVTX_EVENTS"] = [
        nvtx(text="step", eventType=160),
        nvtx(text="mark", eventType=161),
    ]
    assert spans(read(tmp_path, tables)) == [("annotation", "step", 10, 20)]


def test_text_in_the_row_or_registered(tmp_path: Path) -> None:
    tables = two_kernels()
    named = Strings(tables)("registered")
    tables["NVTX_EVENTS"] = [
        nvtx(text="inline", textId=None),
        nvtx(text=None, textId=named, start=11),
        nvtx(text="", textId=named, start=12),
        nvtx(text=None, textId=None, start=13),
    ]
    names = [name for _, name, _, _ in spans(read(tmp_path, tables))]
    assert names == ["inline", "registered", "registered", "not named"]


def test_a_range_that_was_open_ends_with_the_recording(tmp_path: Path) -> None:
    tables = two_kernels()
    tables["NVTX_EVENTS"] = [nvtx(text="serve", end=None), nvtx(text="late", start=900, end=None)]
    assert spans(read(tmp_path, tables)) == [
        ("annotation", "serve", 10, 700),
        ("annotation", "late", 900, 900),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("aten::mm, op_id = 12", "op", "aten::mm"),
        ("aten::mm, seq = 5, op_id = 12, sizes = [[2, 3], []]", "op", "aten::mm"),
        ("AllToAll4D, seq = 45440, op_id = 990760", "op", "AllToAll4D"),
        ("my step, op_id = 12", "annotation", "my step"),
        ("decode, bs = 1", "annotation", "decode, bs = 1"),
        ("ncclAllReduce", "op", "ncclAllReduce"),
    ],
)
def test_ops_of_a_framework(text: str, kind: str, name: str, tmp_path: Path) -> None:
    tables = two_kernels()
    tables["NVTX_EVENTS"] = [nvtx(text=text)]
    assert spans(read(tmp_path, tables)) == [(kind, name, 10, 20)]


def test_a_library_annotates_its_own_domain(tmp_path: Path) -> None:
    tables = two_kernels()
    tables["NVTX_EVENTS"] = [
        nvtx(text="CCCL", eventType=75, domainId=1, start=0, end=None),
        nvtx(text="cub::DeviceReduce", domainId=1),
        nvtx(text="mine", domainId=0),
        nvtx(text="mine too", domainId=1, globalTid=tid(4001, 1)),  # of another process
    ]
    kinds = {name: kind for kind, name, _, _ in spans(read(tmp_path, tables))}
    assert kinds == {"cub::DeviceReduce": "op", "mine": "annotation", "mine too": "annotation"}


# The operating system and the profiler ---------------------------------------------------------


@pytest.mark.parametrize("call", ["pthread_cond_wait", "pthread_mutex_lock", "sem_wait", "write"])
def test_waits_of_the_operating_system(call: str, tmp_path: Path) -> None:
    # The bubble [300,600): [300,500) on the host, 150 of it in the call.
    tables = two_kernels()
    tables["OSRT_API"] = [
        {"start": 320, "end": 470, "globalTid": ME, "nameId": Strings(tables)(call)}
    ]
    (device,) = diagnose(read(tmp_path, tables)).devices
    parts = {part: ns for part, ns in device.parts_ns.items() if ns}
    waits = {Part.HOST_WAIT: 150, Part.HOST_GAP: 50} if call != "write" else {Part.HOST_GAP: 200}
    assert parts == waits | {Part.LAUNCH_CALL: 20, Part.LAUNCH_LATENCY: 80}


@pytest.mark.parametrize("thread", [ME, tid(4000, 1), None])
@pytest.mark.parametrize("table", ["PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"])
def test_the_profiler_owns_its_share(table: str, thread: int | None, tmp_path: Path) -> None:
    tables = two_kernels()
    string = Strings(tables)
    tables[table] = [
        {"start": 320, "end": 420, "globalTid": thread, "nameId": string("Buffer flush")},
        # The device is busy and so the host must wait: that is nobody's overhead.
        {"start": 430, "end": 490, "globalTid": thread, "nameId": string("Command Buffer Full")},
    ]
    found = {f.name: (f.doing, f.ns) for f in diagnose(read(tmp_path, tables)).fillers}
    assert found == {
        "Buffer flush": ("profiler overhead", 100),
        "": ("nothing recorded", 100),
    }


# Synchronisation -------------------------------------------------------------------------------


def call_row(tables: Tables, name: str, correlation: int, at: int = 400) -> None:
    tables[RUNTIME].append(
        {
            "start": at,
            "end": at + 10,
            "globalTid": ME,
            "correlationId": correlation,
            "nameId": Strings(tables)(name),
        }
    )


def sync_row(kind: int, correlation: int, **columns: Any) -> Row:
    ids = {"streamId": 7, "eventId": 5, "eventSyncId": NO_ID, "globalPid": pid(4000)}
    return {"syncType": kind, "correlationId": correlation} | ids | columns


def said(timeline: Timeline, name: str) -> tuple[str, int, int, int]:
    c = timeline.host_calls
    (row,) = (i for i in range(len(c)) if c.name[i] == name)
    return c.sync[row], int(c.stream[row]), int(c.event_stream[row]), int(c.event_record[row])


@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [
        ("cudaStreamSynchronize_v3020", 3, "stream"),
        ("cudaStreamSynchronize_v3020", 2, "stream"),  # as some exports number it
        ("cudaDeviceSynchronize", 4, "context"),
        ("cudaEventSynchronize", 1, "event"),
        ("cudaStreamWaitEvent_v3020", 2, "stream wait"),
        ("cudaMemcpy_v3020", 3, "stream"),
        ("cudaMemcpy_v3020", 0, ""),
        ("cudaMemcpy_v3020", 9, ""),
    ],
)
def test_what_a_call_waits_for(name: str, kind: int, word: str, tmp_path: Path) -> None:
    tables = two_kernels()
    call_row(tables, name, correlation=50)
    tables[SYNC] = [sync_row(kind, 50)]
    plain = name.partition("_v")[0]
    assert said(read(tmp_path, tables), plain) == (word, 7, -1, -1)


def test_handles_of_events_are_used_again(tmp_path: Path) -> None:
    tables = two_kernels()
    call_row(tables, "cudaEventSynchronize", correlation=50)
    tables[SYNC] = [sync_row(1, 50, streamId=NO_ID, eventSyncId=2)]
    tables[EVENT] = [
        {"streamId": s, "correlationId": c, "globalPid": pid(p), "eventId": 5, "eventSyncId": n}
        for s, c, p, n in [(7, 40, 4000, 1), (9, 41, 4000, 2), (11, 42, 4001, 2)]
    ]
    assert said(read(tmp_path, tables), "cudaEventSynchronize") == ("event", -1, 9, 41)
    for row in tables[EVENT]:
        del row["eventSyncId"]
    again = load(write(tmp_path / "old.sqlite", tables))
    assert said(again, "cudaEventSynchronize") == ("event", -1, -1, -1)


@pytest.mark.parametrize("owner", [pid(4000), None])
def test_sync_rows_find_their_call_in_their_process(owner: int | None, tmp_path: Path) -> None:
    tables = two_kernels()
    call_row(tables, "cudaStreamSynchronize", correlation=50)
    tables[RUNTIME].append(tables[RUNTIME][-1] | {"globalTid": tid(4001, 4001), "start": 401})
    tables[SYNC] = [sync_row(3, 50, globalPid=owner)]
    c = read(tmp_path, tables).host_calls
    synced = [(c.process[i], c.sync[i]) for i in range(len(c)) if c.correlation[i] == 50]
    both = owner is None  # then the id is all there is
    assert synced == [(4000, "stream"), (4001, "stream" if both else "")]


# Copies, sets and graphs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "name"),
    [
        ((1, 0, 2), "Memcpy HtoD (Pageable -> Device)"),
        ((2, 2, 1), "Memcpy DtoH (Device -> Pinned)"),
        ((2, 2, 0), "Memcpy DtoH (Device -> Pageable)"),
        ((8, 2, 2), "Memcpy DtoD (Device -> Device)"),
        ((10, 2, 2), "Memcpy PtoP (Device -> Device)"),
        ((11, 4, 2), "Memcpy HtoD (Unified memory)"),
        ((8, None, None), "Memcpy DtoD (Unknown -> Unknown)"),
        ((99, 2, 2), "Memcpy unknown (Unified memory)"),
    ],
)
def test_copies_are_named_as_torch_profiler_names_them(
    kinds: tuple[int | None, ...], name: str, tmp_path: Path
) -> None:
    tables = two_kernels()
    named = dict(zip(("copyKind", "srcKind", "dstKind"), kinds, strict=True))
    tables[MEMCPY] = [tables[KERNEL][0] | {"start": 310, "end": 330, "bytes": 8} | named]
    ops = read(tmp_path, tables).device_ops
    (copy,) = (i for i in range(len(ops)) if ops.kind[i] == "memcpy")
    assert (ops.name[copy], ops.bytes[copy]) == (name, 8)


@pytest.mark.parametrize(("kind", "word"), [(2, "Device"), (1, "Pinned"), (None, "Device")])
def test_sets(kind: int | None, word: str, tmp_path: Path) -> None:
    tables = two_kernels()
    tables[MEMSET] = [tables[KERNEL][0] | {"start": 310, "end": 330, "bytes": 16, "memKind": kind}]
    ops = read(tmp_path, tables).device_ops
    assert (ops.name[1], ops.bytes[1], ops.kind[1]) == (f"Memset ({word})", 16, "memset")


@pytest.mark.parametrize(
    ("columns", "graph", "node"),
    [
        ({"graphNodeId": (4 << 32) + 6}, 4, (4 << 32) + 6),
        ({"graphNodeId": (4 << 32) + 6, "graphId": 8}, 8, (4 << 32) + 6),
        ({"graphNodeId": 0, "graphId": 0}, -1, -1),
        ({"graphNodeId": None, "graphId": None}, -1, -1),
        ({"graphNodeId": 6}, -1, 6),
    ],
)
def test_nodes_of_graphs(columns: Row, graph: int, node: int, tmp_path: Path) -> None:
    tables = two_kernels()
    for row in tables[KERNEL]:
        row.pop("graphId")
        row |= columns
    ops = read(tmp_path, tables).device_ops
    assert (ops.graph.tolist(), ops.node.tolist()) == ([graph] * 2, [node] * 2)


@pytest.mark.parametrize(("column", "graph"), [("graphId", 3), ("graphExecId", 3), ("none", -1)])
def test_graphs_recorded_whole(column: str, graph: int, tmp_path: Path) -> None:
    tables = two_kernels()
    block = {k: v for k, v in tables[KERNEL][0].items() if k in ("correlationId", "streamId")}
    tables[GRAPH] = [block | {"start": 300, "end": 400, "deviceId": 0, column: 3}]
    timeline = read(tmp_path, tables)
    ops = timeline.device_ops
    assert (ops.kind[1], int(ops.graph[1])) == ("graph", graph)
    assert ops.name[1] == ("graph 3" if graph > 0 else "graph")
    assert timeline.health.kind.to_list() == ["graph recorded whole"]
    assert "--cuda-graph-trace=node" in timeline.health.note[0]


# Call chains -----------------------------------------------------------------------------------

TORCH = "/env/lib/python3.11/site-packages/torch/_ops.py"


@pytest.mark.parametrize(
    ("chain", "site"),
    [
        # Symbols and modules of the frames, innermost first.
        ([("cudaLaunchKernel", "libcudart.so.12"), ("step", "/srv/serve.py:12")], "py 12 step"),
        ([("call", TORCH), ("step", "/srv/serve.py:12")], "py 12 step"),
        ([("call", TORCH), ("main", "/usr/bin/serve")], "/usr/bin/serve -1 main"),
        ([("call", TORCH)], f"{TORCH} -1 call"),
        ([("step:12", "/srv/serve.py")], "py 12 step"),
        ([("/srv/serve.py:12 step", "")], "py 12 step"),
        ([("step", "/srv/serve.py")], "py -1 step"),
        ([("Engine::run()", "/opt/engine")], "/opt/engine -1 Engine::run()"),
        ([("0x7f12", "/opt/engine")], None),
        ([("__libc_start_main", "/lib/libc.so.6"), ("[Max depth]", "[Max depth]")], None),
    ],
)
def test_call_chains(chain: list[tuple[str, str]], site: str | None, tmp_path: Path) -> None:
    tables = two_kernels()
    string = Strings(tables)
    tables["CUDA_CALLCHAINS"] = [
        {"id": 5, "symbol": string(s), "module": string(m), "unresolved": None, "stackDepth": d}
        for d, (s, m) in reversed(list(enumerate(chain)))
    ]
    tables[RUNTIME][0]["callchainId"] = 5
    timeline = read(tmp_path, tables)
    frames, row = timeline.frames, timeline.host_calls.frame.tolist()
    assert row == [-1 if site is None else 0, -1]
    found = [
        f"{frames.file[i].replace('/srv/serve.py', 'py')} {frames.line[i]} {frames.function[i]}"
        for i in range(len(frames))
    ]
    assert found == ([] if site is None else [site])


def test_an_unresolved_frame_is_no_place(tmp_path: Path) -> None:
    tables = two_kernels()
    string = Strings(tables)
    frame = {"id": 5, "module": string("/opt/engine"), "symbol": string("run")}
    tables["CUDA_CALLCHAINS"] = [
        frame | {"unresolved": 1, "stackDepth": 0},
        frame | {"unresolved": 0, "stackDepth": 1, "symbol": string("main")},
    ]
    tables[RUNTIME][1]["callchainId"] = 5
    timeline = read(tmp_path, tables)
    assert timeline.frames.function.to_list() == ["main"]
    assert timeline.host_calls.frame.tolist() == [-1, 0]


def test_a_read_is_named_by_its_line(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for t in (0, 1_000):
        trace.launch("k", at=t + 100, dur=10, start=t + 200, run=100)
        trace.sync(at=t + 150, dur=160)
    tables = export(trace.timeline())
    string = Strings(tables)
    tables["CUDA_CALLCHAINS"] = [
        {"id": 1, "symbol": string("decode"), "module": string("serve.py:40"), "stackDepth": 0}
    ]
    for row in tables[RUNTIME]:
        row["callchainId"] = 1
    (read_site,) = diagnose(read(tmp_path, tables)).reads
    site = read_site.site
    assert site is not None
    assert (site.file, site.line, site.function) == ("serve.py", 40, "decode")
