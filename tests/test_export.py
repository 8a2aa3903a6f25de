"""Exports: what a viewer draws and a notebook reads, against the recording it came from."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from decimal import Decimal
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Diagnosis, Part
from bubblescope.errors import BubblescopeError
from bubblescope.export import FORMATS
from bubblescope.export.lanes import apart, nested
from bubblescope.ingest import load
from bubblescope.timeline import Device, Health, ThreadName, Timeline, bscope
from tests.corpus import need
from tests.strategies import recordings
from tests.synthetic import TraceBuilder

TRACES = Path(__file__).parents[1] / "traces"
_READ = ("calls", "blocked_ns", "exposed_idle_ns")
SHIPPED = sorted(path.name for path in TRACES.glob("*.bscope"))
_TRIES = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def exported(timeline: Timeline, path: Path, to: str = "chrome") -> Diagnosis:
    diagnosis = diagnose(timeline)
    FORMATS[to].write(timeline, diagnosis, path, True)
    return diagnosis


def events(path: Path) -> list[dict[str, Any]]:
    """The events of a file, times in ns by way of `Decimal`."""
    document = json.loads(path.read_bytes(), parse_float=Decimal)
    for event in document["traceEvents"]:
        for field in ("ts", "dur"):
            if field in event:
                event[field] = int(event[field] * 1000)
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def slices(path: Path) -> list[dict[str, Any]]:
    return [e for e in events(path) if e["ph"] == "X"]


def figures(diagnosis: Diagnosis) -> list[Any]:
    """What must be the same to the nanosecond."""
    return [
        (
            d.rank, d.device, d.busy_ns, d.overlapped_ns, d.opaque_ns, d.window_ns, d.parts_ns,
            d.bubbles.start.tolist(), d.bubbles.end.tolist(),
            d.pieces.bubble.tolist(), d.pieces.start.tolist(), d.pieces.end.tolist(),
            d.pieces.part.tolist(), d.pieces.doing.tolist(),
            d.steps.number.tolist(), d.steps.start.tolist(), d.steps.end.tolist(),
            *(sum(getattr(r, n) for r in d.reads) for n in _READ),
        )
        for d in diagnosis.devices
    ]  # fmt: skip


# Round trip ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_a_recording_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    timeline = bscope.read(TRACES / name)
    before = exported(timeline, tmp_path / "t.json")
    back = load(tmp_path / "t.json")
    assert back.tables() == timeline.tables()
    assert back.meta.devices == timeline.meta.devices
    assert back.meta.unprofiled_step_ns == timeline.meta.unprofiled_step_ns
    assert back.meta.about == timeline.meta.about
    assert figures(diagnose(back)) == figures(before)


@pytest.mark.parametrize(
    "name",
    ["hta_cudagraph_16rank_rank0", "hta_event_sync", "kineto_2021_resnet_w0", "tl_h100_bert_small",
     "nanovllm_decode_gpu_0", "tl_mi300_sglang_decode", "tl_mi210_gpu_only"],
)  # fmt: skip
def test_a_foreign_file_comes_back_as_it_was_read(tmp_path: Path, name: str) -> None:
    timeline = load(need(f"traces/{name}.json.gz"))
    before = exported(timeline, tmp_path / "t.json.gz")
    back = load(tmp_path / "t.json.gz")
    assert back.tables() == timeline.tables()
    assert figures(diagnose(back)) == figures(before)


@_TRIES
@given(recordings())
def test_any_recording_comes_back(tmp_path: Path, timeline: Timeline) -> None:
    before = exported(timeline, tmp_path / "t.json")
    after = diagnose(load(tmp_path / "t.json"))
    assert figures(after) == figures(before)
    assert_drawn(tmp_path / "t.json", timeline)


def test_a_range_of_another_year_moves_nothing(tmp_path: Path) -> None:
    now = 1_700_000_000_000_000_000
    trace = TraceBuilder().launch("k", at=now, dur=10, start=now + 20, run=300)
    timeline = trace.range("annotation", "stray", now // 10, 5).timeline()
    before = exported(timeline, tmp_path / "t.json")
    back = load(tmp_path / "t.json")
    assert back.tables() == timeline.tables()
    assert figures(diagnose(back)) == figures(before)


def test_a_device_without_a_number_comes_back_as_such(tmp_path: Path) -> None:
    trace = TraceBuilder().on(device=-1).launch("k", at=5_000_000, dur=10, start=5_000_020, run=300)
    timeline = trace.on(device=0).launch("k", 5_000_400, 10, 5_000_500, 10).timeline()
    before = exported(timeline, tmp_path / "t.json")
    back = load(tmp_path / "t.json")
    assert back.device_ops.device.tolist() == [-1, 0]
    assert figures(diagnose(back)) == figures(before)


def test_threads_of_any_number_come_back(tmp_path: Path) -> None:
    # Two rows that cross on the thread with the largest number there is: a lane is needed.
    last = 2**63 - 1
    trace = TraceBuilder().launch("k", at=5_000_000, dur=10, start=5_000_020, run=300)
    wide = trace.on(thread=last).range("op", "a", 5_000_000, 9).range("op", "b", 5_000_005, 9)
    timeline = wide.timeline()
    exported(timeline, tmp_path / "t.json")
    assert load(tmp_path / "t.json").tables() == timeline.tables()


def two_ranks() -> Timeline:
    """Two processes whose ids for everything are the same, of different lengths."""
    trace = TraceBuilder()
    for rank, run in ((0, 300), (1, 500)):
        place = trace.on(rank=rank)
        for n in range(4):
            place.launch("k", at=1000 * n + 5_000_000, dur=10, start=1000 * n + 5_000_020, run=run)
        place.sync(at=5_003_030, dur=run, row="stream")
    return trace.timeline()


def test_ids_of_several_ranks_are_told_apart(tmp_path: Path) -> None:
    timeline = two_ranks()
    before = exported(timeline, tmp_path / "t.json")
    back = load(tmp_path / "t.json")
    after = diagnose(back)
    assert [d.busy_ns for d in before.devices] == [1200, 2000]
    assert figures(after) == figures(before)
    assert [(d.rank, d.device) for d in after.devices] == [(0, 0), (1, 0)]
    assert back.host_calls.rank.tolist() == timeline.host_calls.rank.tolist()
    assert set(back.host_calls.process.tolist()) == {4000}
    shown = slices(tmp_path / "t.json")
    calls = [e for e in shown if e["cat"] == "cuda_runtime"]
    assert {e["pid"] for e in calls} == {4000, 4001}
    assert len({e["args"]["correlation"] for e in calls}) == len(calls) == len(back.host_calls)
    assert {e["args"]["device"] for e in shown if e["cat"] == "kernel"} == {0, 1}


def test_names_of_several_ranks_come_back(tmp_path: Path) -> None:
    timeline = two_ranks()
    meta = msgspec.structs.replace(
        timeline.meta,
        world_size=2,
        devices=(Device(0, 0, "first"), Device(1, 0, "second")),
        threads=tuple(ThreadName(rank, 4000, -1, f"worker {rank}") for rank in (0, 1)),
    )
    rows = Health.build(2, rank=[0, 1], kind="note", count=[3, 4], note=["of 0", "of 1"])
    timeline = replace(timeline, meta=meta, health=rows)
    exported(timeline, tmp_path / "t.json")
    back = load(tmp_path / "t.json")
    assert back.health == rows
    assert (back.meta.devices, back.meta.threads) == (meta.devices, meta.threads)
    processes = {
        e["pid"]: e["args"]["name"]
        for e in events(tmp_path / "t.json")
        if e["name"] == "process_name"
    }
    assert [processes[4000], processes[4001]] == ["worker 0", "worker 1"]


def test_health_comes_back(tmp_path: Path) -> None:
    text = json.dumps(
        [
            {"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": 1, "pid": 0, "tid": 7},
            {"ph": "X", "cat": "kernel", "name": "k", "ts": 9, "dur": 1, "pid": 0, "tid": 7},
        ]
    )
    (tmp_path / "cut").write_text(text[:-30])
    timeline = load(tmp_path / "cut")
    exported(timeline, tmp_path / "t.json")
    assert load(tmp_path / "t.json").health == timeline.health
    assert timeline.health.kind.to_list() == ["cut short"]


# What is drawn ---------------------------------------------------------------------------------


def nest(rows: list[tuple[int, int]]) -> bool:
    """Whether any two spans of one track nest or lie apart, looked at pair by pair."""
    return all(
        b[0] >= a[1] or a[0] >= b[1] or (a[0] <= b[0] and b[1] <= a[1])
        or (b[0] <= a[0] and a[1] <= b[1])
        for a, b in combinations(rows, 2)
    )  # fmt: skip


def assert_drawn(path: Path, timeline: Timeline) -> None:
    """No slice is one that a viewer drops, and each row of the recording has one."""
    tracks: dict[Any, list[tuple[int, int]]] = {}
    for e in slices(path):
        tracks.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    assert all(map(nest, tracks.values()))
    of_ops = {"kernel", "gpu_memcpy", "gpu_memset", "bubblescope_graph"}
    ops = [e for e in slices(path) if e["cat"] in of_ops]
    assert len(ops) == len(timeline.device_ops)
    lanes: dict[Any, list[tuple[int, int]]] = {}
    for e in ops:
        lanes.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for lane in lanes.values():
        lane.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(lane))
    named = {(e["pid"], e["tid"]) for e in events(path) if e.get("name") == "thread_name"}
    assert set(tracks) <= named


def test_overlapping_operations_have_lanes_of_their_own(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for n in range(3):  # a PDL chain: each begins 20 before the one before it ends
        trace.launch(f"k{n}", at=1_000_000 + 10 * n, dur=5, start=1_000_100 + 80 * n, run=100)
    trace.on(stream=9).launch("side", at=1_000_040, dur=5, start=1_000_150, run=50)
    exported(trace.timeline(), tmp_path / "t.json")
    place = {e["name"]: (e["pid"], e["tid"]) for e in slices(tmp_path / "t.json")}
    names = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events(tmp_path / "t.json")
        if e["name"] == "thread_name"
    }
    assert place["k0"] == place["k2"]
    assert [names[place[k]] for k in ("k0", "k1", "side")] == [
        "stream 7",
        "stream 7, overlapping (1)",
        "stream 9",
    ]
    streams = {e["name"]: e["args"]["stream"] for e in slices(tmp_path / "t.json") if e["args"].get(
        "stream")}  # fmt: skip
    assert streams == {"k0": 7, "k1": 7, "k2": 7, "side": 9}


def test_host_rows_that_cross_come_back_to_their_thread(tmp_path: Path) -> None:
    trace = TraceBuilder().range("op", "outer", at=1_000_000, dur=100)
    trace.range("op", "crossing", at=1_000_050, dur=100)
    trace.launch("k", at=1_000_060, dur=10, start=1_000_200, run=10)
    timeline = trace.timeline()
    exported(timeline, tmp_path / "t.json")
    tids = {e["name"]: e["tid"] for e in slices(tmp_path / "t.json")}
    assert tids["outer"] != tids["crossing"]
    assert load(tmp_path / "t.json").ranges == timeline.ranges


def test_flows_lead_from_launch_to_operation(tmp_path: Path) -> None:
    trace = TraceBuilder().launch("a", at=1_000_000, dur=10, start=1_000_020, run=5)
    trace.graph(at=1_000_050, dur=30, nodes=[("n0", 1_000_090, 5), ("n1", 1_000_096, 5)])
    exported(trace.timeline(), tmp_path / "t.json")
    flows: dict[int, dict[str, Any]] = {}
    for e in events(tmp_path / "t.json"):
        if e["ph"] in "sf":
            flows.setdefault(e["id"], {})[e["ph"]] = e
    at = {
        (e["pid"], e["tid"], e["ts"]): e["name"] for e in slices(tmp_path / "t.json")
        if e["cat"] != "bubblescope_diagnosis"
    }  # fmt: skip
    joined = {
        tuple(at[f[ph]["pid"], f[ph]["tid"], f[ph]["ts"]] for ph in "sf") for f in flows.values()
    }
    assert joined == {("cudaLaunchKernel", "a"), ("cudaGraphLaunch", "n0")}


def test_bubbles_are_slices_with_their_parts_inside(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    diagnosis = exported(bscope.read(TRACES / "ling3-h200-seqlen-sync.bscope"), path)
    (device,) = diagnosis.devices
    own = [e for e in slices(path) if e["cat"] == "bubblescope_diagnosis"]
    whole = [e for e in own if e["name"] == "bubble"]
    assert len(whole) == len(device.bubbles.start)
    assert sum(e["dur"] for e in whole) == sum(device.parts_ns.values())
    for part in Part:
        assert sum(e["dur"] for e in own if e["name"] == part.label) == device.parts_ns[part]
    steps = [e for e in own if e["name"].startswith("step ")]
    assert sum(e["dur"] for e in steps) == device.window_ns


def test_the_busy_time_of_a_viewer_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    diagnosis = exported(bscope.read(TRACES / "ling3-h200-no-sync.bscope"), path)
    on_device = [e for e in slices(path) if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    busy, reach = 0, -1
    for start, end in sorted((e["ts"], e["ts"] + e["dur"]) for e in on_device):
        busy += max(0, end - max(start, reach))
        reach = max(reach, end)
    assert busy == diagnosis.total("busy_ns")


def test_names_may_hold_anything(tmp_path: Path) -> None:
    name = 'k<"\\\n\x00\N{SNOWMAN}\ud800>'
    trace = TraceBuilder().launch(name, at=1_000_000, dur=10, start=1_000_020, run=5)
    exported(trace.timeline(), tmp_path / "t.json")
    assert load(tmp_path / "t.json").device_ops.name[0] == name.replace("\ud800", "?")


# Lanes -----------------------------------------------------------------------------------------

_spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=14)


def ordered(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(((s, s + n) for s, n in spans), key=lambda x: (x[0], -x[1]))


@_TRIES
@given(_spans)
def test_lanes_apart(spans: list[tuple[int, int]]) -> None:
    rows = sorted((s, s + n) for s, n in spans)
    lane = apart(*np.array(rows, np.int64).reshape(-1, 2).T)
    deepest = max((sum(s <= at < max(e, s + 1) for s, e in rows) for at, _ in rows), default=0)
    for k in set(lane.tolist()):
        mine = [r for r, n in zip(rows, lane.tolist(), strict=True) if n == k]
        assert all(a[1] <= b[0] for a, b in pairwise(mine))
    assert len(set(lane.tolist())) <= max(deepest, 1)  # no more lanes than are needed


@_TRIES
@given(_spans)
def test_lanes_nested(spans: list[tuple[int, int]]) -> None:
    rows = ordered(spans)
    lane = nested(*np.array(rows, np.int64).reshape(-1, 2).T)
    for k in set(lane.tolist()):
        assert nest([r for r, n in zip(rows, lane.tolist(), strict=True) if n == k])
    if nest(rows):
        assert not lane.any()


# Files -----------------------------------------------------------------------------------------


def test_gzip_by_the_name(tmp_path: Path) -> None:
    timeline = two_ranks()
    exported(timeline, tmp_path / "t.json")
    exported(timeline, tmp_path / "t.json.gz")
    assert (
        gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == (tmp_path / "t.json").read_bytes()
    )


@pytest.mark.parametrize("to", ["parquet", "csv"])
def test_tables(tmp_path: Path, to: str) -> None:
    timeline = bscope.read(TRACES / "ling3-h200-seqlen-sync.bscope")
    diagnosis = exported(timeline, tmp_path / "t", to)
    (device,) = diagnosis.devices
    read = {
        path.stem: pq.read_table(path).to_pylist()
        if to == "parquet"
        else list(csv.DictReader(path.open(newline="")))
        for path in (tmp_path / "t").iterdir()
        if path.suffix == f".{to}"
    }
    assert set(read) == {*timeline.tables(), "bubbles", "bubble_parts", "diagnosed_steps"}
    assert len(read["device_ops"]) == len(timeline.device_ops)
    assert [int(r["start"]) for r in read["device_ops"]] == timeline.device_ops.start.tolist()
    assert [r["name"] for r in read["host_calls"]] == timeline.host_calls.name.to_list()
    for part in Part:
        found = sum(
            int(r["end"]) - int(r["start"]) for r in read["bubble_parts"] if r["part"] == part.label
        )
        assert found == device.parts_ns[part]
    lengths = [int(r["end"]) - int(r["start"]) for r in read["bubbles"]]
    assert device.busy_ns + sum(lengths) == device.window_ns
    assert json.loads((tmp_path / "t/meta.json").read_text())["capture"] == "torch.profiler"


@pytest.mark.parametrize("to", FORMATS)
def test_nothing_is_replaced_unasked(tmp_path: Path, to: str) -> None:
    path, timeline = tmp_path / "t", two_ranks()
    diagnosis = diagnose(timeline)
    FORMATS[to].write(timeline, diagnosis, path, False)
    with pytest.raises(BubblescopeError, match="exists already; --force replaces it"):
        FORMATS[to].write(timeline, diagnosis, path, False)
    FORMATS[to].write(timeline, diagnosis, path, True)
    with pytest.raises(BubblescopeError, match="cannot write here"):
        FORMATS[to].write(timeline, diagnosis, tmp_path / "none/t", False)
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_a_folder_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    timeline = two_ranks()
    for name in ("notes.txt", "meta.json"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("mine")
        (folder / "inner").mkdir()
        with pytest.raises(BubblescopeError, match="holds more than an export"):
            FORMATS["csv"].write(timeline, diagnose(timeline), folder, True)
        assert (folder / name).read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BubblescopeError, match="is a file, and tables need a folder"):
        FORMATS["csv"].write(timeline, diagnose(timeline), tmp_path / "file", True)
