"""Several files as the ranks of one run, and folders of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Part
from bubblescope.errors import BubblescopeError
from bubblescope.ingest import folder, load, load_all
from bubblescope.ingest.together import join
from bubblescope.timeline import Timeline, bscope, ranks
from tests.corpus import need
from tests.nsys_export import Strings, export, write
from tests.synthetic import BASE_NS, TraceBuilder
from tests.test_ingest_kineto import kernel, launch, save, span

US = 1_000


def one(start: int = 100, run: int = 50, rank: int = 0) -> TraceBuilder:
    """A rank with one launch, a Python frame's worth of annotation, and id 1, as all have."""
    trace = TraceBuilder().on(rank=rank)
    trace.range("annotation", "step", at=start - 60, dur=40)
    trace.launch("k", at=start - 50, dur=10, start=start, run=run)
    return trace


def kineto(path: Path, trace: TraceBuilder, rank: int | None = None, world: int = 2) -> Path:
    """As torch.profiler writes it; it names no rank unless one is given."""
    trace.write_kineto(path)
    document = json.loads(path.read_text())
    del document["distributedInfo"]
    if rank is not None:
        document["distributedInfo"] = {"rank": rank, "world_size": world}
    path.write_text(json.dumps(document))
    return path


def starts(timeline: Timeline) -> dict[int, int]:
    """When the first operation of each rank begins."""
    ops = timeline.device_ops
    return {r: int(ops.start[ops.rank == r].min()) for r in np.unique(ops.rank).tolist()}


def health(timeline: Timeline) -> dict[str, str]:
    return dict(zip(timeline.health.kind.to_list(), timeline.health.note.to_list(), strict=True))


# Which rank is which ---------------------------------------------------------------------------


def test_ranks_that_the_files_state(tmp_path: Path) -> None:
    paths = [kineto(tmp_path / f"{r}.json", one(100 + r), rank=r) for r in (1, 0)]
    timeline = load_all(paths)
    assert starts(timeline) == {0: BASE_NS + 100, 1: BASE_NS + 101}
    assert not len(timeline.health)
    assert timeline.meta.world_size == 2
    assert timeline.meta.source == "1.json, 0.json"
    assert {(d.rank, d.index) for d in timeline.meta.devices} == {(0, 0), (1, 0)}
    # The ids are the same in both files, and each operation has the launch of its own rank.
    assert diagnose(timeline).total("unknown_ns") == 0


@pytest.mark.parametrize(
    "names",
    [
        ("rank3.json", "rank12.json"),
        ("run-TP-3.trace.json", "run-TP-12.trace.json"),
        ("host_gpu3.json", "host_gpu12.json"),
        ("worker12_step_3.json", "worker3_step_3.json"),
        ("trace-DP0-TP3.json", "trace-DP0-TP12.json"),
        ("r3.json", "r12.json"),
    ],
)
def test_ranks_in_the_names_of_the_files(names: tuple[str, str], tmp_path: Path) -> None:
    for name in names:
        kineto(tmp_path / name, one(3 if "12" not in name.split("_step")[0] else 12))
    timeline = load_all([tmp_path / name for name in names])
    assert starts(timeline) == {3: BASE_NS + 3, 12: BASE_NS + 12}
    assert not len(timeline.health)
    assert timeline.meta.world_size == 13


@pytest.mark.parametrize("names", [("b.json", "a.json"), ("rank1.json", "rank1.part2.json")])
def test_else_the_order_of_the_files(names: tuple[str, str], tmp_path: Path) -> None:
    for n, name in enumerate(names):
        kineto(tmp_path / name, one(100 + n))
    timeline = load_all([tmp_path / name for name in names])
    assert starts(timeline) == {0: BASE_NS + 100, 1: BASE_NS + 101}
    assert health(timeline).keys() == {"ranks not stated"}


def test_the_same_rank_in_two_files_is_told_by_their_names(tmp_path: Path) -> None:
    paths = [kineto(tmp_path / f"rank{n}.json", one(100 + n), rank=0) for n in (4, 5)]
    assert starts(load_all(paths)) == {4: BASE_NS + 104, 5: BASE_NS + 105}


def test_files_with_several_ranks_each(tmp_path: Path) -> None:
    """Two machines, each an nsys export of two processes."""
    paths = []
    for n in range(2):
        trace = TraceBuilder()
        for gpu in range(2):
            mine = trace.on(process=70 + gpu, device=gpu)
            mine.launch("k", at=10, dur=5, start=1_000 * n + 20 + gpu, run=30)
        tables = export(trace.timeline())
        tables["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": BASE_NS}]
        paths.append(write(tmp_path / f"node{n}.sqlite", tables))
    timeline = load_all(paths)
    assert starts(timeline) == {
        0: BASE_NS + 20,
        1: BASE_NS + 21,
        2: BASE_NS + 1_020,
        3: BASE_NS + 1_021,
    }
    assert timeline.meta.world_size == 4
    assert timeline.meta.base_ns == BASE_NS
    assert health(timeline).keys() == {"ranks not stated"}


# One clock -------------------------------------------------------------------------------------


def test_files_of_two_tools_on_one_clock(tmp_path: Path) -> None:
    """Kineto's base and the start of an nsys session both say when, since 1970."""
    a = kineto(tmp_path / "rank0.json", one(100))
    tables = export(one(100).timeline())
    tables["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": BASE_NS + 7_000}]
    b = write(tmp_path / "rank1.sqlite", tables)
    timeline = load_all([a, b])
    assert starts(timeline) == {0: BASE_NS + 100, 1: BASE_NS + 7_100}
    assert timeline.meta.base_ns == 0  # they differ
    assert timeline.meta.format == "Nsight Systems, PyTorch profiler"
    assert not len(timeline.health)


def test_no_common_clock(tmp_path: Path) -> None:
    a = kineto(tmp_path / "rank0.json", one(300))
    b = write(tmp_path / "rank1.sqlite", export(one(100).timeline()))
    timeline = load_all([a, b])
    assert starts(timeline) == {0: 0, 1: 0}
    assert timeline.host_calls.start.tolist() == [-50, -50]
    assert timeline.ranges.start.tolist() == [-60, -60]
    note = health(timeline)["no common clock"]
    assert note.startswith("1 of 2 files do not say when they were recorded: all are laid together")


# What is joined --------------------------------------------------------------------------------


def test_every_row_of_every_rank_is_there(tmp_path: Path) -> None:
    whole = TraceBuilder()
    paths = []
    for r in range(3):
        for trace in (whole.on(rank=r), mine := TraceBuilder()):
            trace.range("annotation", "step", at=10, dur=300)
            trace.launch("k", at=20, dur=5 + r, start=100, run=50)
            trace.launch("l", at=40, dur=5, start=150, run=50 + r)
            trace.sync(at=60, dur=150 + r)
        paths.append(kineto(tmp_path / f"rank{r}.json", mine))
    got, expected = load_all(paths), whole.timeline()
    for name in ("device_ops", "host_calls", "ranges"):
        mine_rows, other = got.tables()[name], expected.tables()[name]
        for column in ("rank", "process", "thread", "correlation", "name"):
            if hasattr(other, column) and column != "name":
                assert getattr(mine_rows, column).tolist() == getattr(other, column).tolist()
        assert (mine_rows.start - BASE_NS).tolist() == other.start.tolist()
        assert (mine_rows.end - BASE_NS).tolist() == other.end.tolist()
    a, b = diagnose(got), diagnose(expected)
    assert [d.parts_ns for d in a.devices] == [d.parts_ns for d in b.devices]


def test_call_sites_stay_with_their_calls(tmp_path: Path) -> None:
    paths = []
    for r in range(2):
        tables = export(one(100 + r).timeline())
        string = Strings(tables)
        tables["CUDA_CALLCHAINS"] = [
            {"id": 1, "symbol": string("f"), "module": string(f"r{r}.py:{r + 5}"), "stackDepth": 0}
        ]
        tables["CUPTI_ACTIVITY_KIND_RUNTIME"][0]["callchainId"] = 1
        paths.append(write(tmp_path / f"rank{r}.sqlite", tables))
    got = load_all(paths)
    calls, frames = got.host_calls, got.frames
    where = {
        r: (frames.file[f], int(frames.line[f]))
        for r, f in zip(calls.rank.tolist(), calls.frame.tolist(), strict=True)
    }
    assert where == {0: ("r0.py", 5), 1: ("r1.py", 6)}


def test_ranks_share_their_call_sites(tmp_path: Path) -> None:
    """Two ranks read at one line: that is one site, named once."""
    paths = []
    for r in range(2):
        trace = one(100, rank=0).sync(at=100, dur=60).launch("k", at=200, dur=9, start=300, run=9)
        tables = export(trace.timeline())
        string = Strings(tables)
        extra = {"id": 2, "symbol": string("g"), "module": string(f"r{r}.py"), "stackDepth": 0}
        shared = {"id": 1, "symbol": string("f"), "module": string("m.py:7"), "stackDepth": 0}
        tables["CUDA_CALLCHAINS"] = [extra, shared]
        for row in tables["CUPTI_ACTIVITY_KIND_RUNTIME"]:
            row["callchainId"] = 2 if row["start"] == 50 else 1
        paths.append(write(tmp_path / f"rank{r}.sqlite", tables))
    got = load_all(paths)
    assert sorted(got.frames.file.to_list()) == ["m.py", "r0.py", "r1.py"]
    (read,) = diagnose(got).reads
    assert (read.calls, read.site.file if read.site else "") == (2, "m.py")


def test_names_and_notes_go_with_their_rank(tmp_path: Path) -> None:
    broken = [launch(1, 1, 1), kernel(2, 1, correlation=1), kernel(0, 0, correlation=9)]
    epoch = 1_700_000_000_000_000
    good = [launch(epoch + 1, 1, 1), kernel(epoch + 2, 1, correlation=1)]
    broken[0]["ts"] = epoch + 1
    broken[1]["ts"] = epoch + 2
    paths = [save(tmp_path / "rank0.json", good), save(tmp_path / "rank7.json", broken)]
    got = load_all(paths)
    assert got.health.kind.to_list() == ["zero timestamp"]
    assert got.health.rank.tolist() == [7]
    assert len(ranks.only(got, 0).health) == 0


def test_one_rank_of_several(tmp_path: Path) -> None:
    paths = [kineto(tmp_path / f"rank{r}.json", one(100 + r, run=50 + r)) for r in range(2)]
    alone = ranks.only(load_all(paths), 1)
    assert starts(alone) == {1: BASE_NS + 101}
    assert diagnose(alone).total("busy_ns") == 51
    assert [d.rank for d in alone.meta.devices] == [1]
    single = load(paths[1])
    assert len(alone.host_calls) == len(single.host_calls)
    with pytest.raises(BubblescopeError, match=r"--rank 5: no such rank; .* has 0, 1$"):
        ranks.only(load_all(paths), 5)


def test_versions_steps_and_levels_that_differ() -> None:
    a, b = one(rank=0).timeline(), one(rank=1).timeline()
    said: Any = {"versions": {"CUDA": "12"}, "unprofiled_step_ns": 9, "level": "node"}
    metas = [
        msgspec.structs.replace(a.meta, **said),
        msgspec.structs.replace(b.meta, **said | {"versions": {"CUDA": "13", "NCCL": "2"}}),
    ]
    both = [Timeline.of(m, **t.tables()) for m, t in zip(metas, (a, b), strict=True)]
    named = list(zip(map(Path, ("a", "b")), both, strict=True))
    meta = join(named).meta
    assert meta.versions == {"CUDA": "12", "NCCL": "2"}
    assert (meta.unprofiled_step_ns, meta.level) == (9, "node")
    other = msgspec.structs.replace(metas[1], level="graph", unprofiled_step_ns=8)
    meta = join([named[0], (Path("b"), Timeline.of(other, **b.tables()))]).meta
    assert (meta.unprofiled_step_ns, meta.level) == (None, "")


# Folders ---------------------------------------------------------------------------------------


def test_a_folder_holds_one_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for r in (10, 2, 0):
        kineto(run / f"rank{r}.json", one(100 + r))
    (run / ".hidden.json").write_text("no")
    (run / "logs").mkdir()
    stages: list[float] = []
    timeline = load(run, progress=lambda _stage, share: stages.append(share))
    assert sorted(starts(timeline)) == [0, 2, 10]
    assert timeline.meta.source == "run"
    assert not len(timeline.health)
    assert stages == sorted(stages)
    assert stages[-1] == 1.0
    assert load_all([run]) == timeline


def test_files_that_are_none_are_left_out_and_named(tmp_path: Path) -> None:
    kineto(tmp_path / "rank0.json", one(100), rank=0)
    kineto(tmp_path / "rank1.json", one(101), rank=1)
    (tmp_path / "README.md").write_text("# what this is\n")
    save(tmp_path / "cpu.json", [span("cpu_op", "aten::mm", 0, 3)])
    timeline = load(tmp_path)
    assert sorted(starts(timeline)) == [0, 1]
    (note,) = timeline.health.note.to_list()
    assert timeline.health.count.tolist() == [2]
    assert timeline.health.rank.tolist() == [-1]
    assert note.startswith("2 files are left out: README.md not a trace: it begins with b'# what")
    assert "; cpu.json CPU-only trace" in note
    assert str(tmp_path) not in note


def test_one_recording_among_others_keeps_its_rank(tmp_path: Path) -> None:
    kineto(tmp_path / "trace.json", one(100), rank=5, world=8)
    (tmp_path / "notes.txt").write_text("nothing\n")
    timeline = load(tmp_path)
    assert starts(timeline) == {5: BASE_NS + 100}
    assert timeline.meta.world_size == 8
    assert timeline.meta.source == "trace.json"
    assert list(health(timeline)) == ["not read"]


def test_a_folder_without_a_recording(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("nothing\n")
    (tmp_path / "b.json").write_text("")
    with pytest.raises(BubblescopeError) as error:
        load(tmp_path)
    text = str(error.value)
    assert text.startswith(f"{tmp_path}: no recording among its 2 files; the first, a.txt not a tr")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BubblescopeError, match=r"is a folder without files; name one that holds"):
        load(tmp_path / "empty")
    (tmp_path / "outer/inner").mkdir(parents=True)
    with pytest.raises(BubblescopeError, match=r"without files, only folders: inner; name one"):
        load(tmp_path / "outer")


def test_a_file_that_is_named_must_be_readable(tmp_path: Path) -> None:
    good = kineto(tmp_path / "rank0.json", one(100))
    bad = tmp_path / "rank1.json"
    bad.write_text("no")
    with pytest.raises(BubblescopeError, match=f"^{bad}: not a trace"):
        load_all([good, bad])


def test_files_and_folders_together(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    kineto(tmp_path / "more/rank1.json", one(101))
    bscope.write(one(102).timeline(), tmp_path / "more/rank2.bscope")
    a = kineto(tmp_path / "rank0.json", one(100))
    assert sorted(starts(load_all([a, tmp_path / "more"]))) == [0, 1, 2]


def test_a_report_beside_its_own_export_is_left_alone(tmp_path: Path) -> None:
    names = ["run.sqlite", "run.nsys-rep", "other.nsys-rep", "run10.json", "run9.json", ".x"]
    for name in names:
        (tmp_path / name).touch()
    found = [p.name for p in folder.files(tmp_path)]
    assert found == ["other.nsys-rep", "run9.json", "run10.json", "run.sqlite"]


def test_what_is_there_twice_is_read_once(tmp_path: Path) -> None:
    # A link "latest", another into another folder, and a file beside what it was packed into.
    run = tmp_path / "run"
    run.mkdir()
    for rank in (0, 1):
        kineto(run / f"rank{rank}.json", one(100 + rank))
    (run / "latest.json").symlink_to("rank1.json")
    (run / "again.json").symlink_to(run / "latest.json")
    (run / "rank0.json.gz").write_bytes(gzip.compress((run / "rank0.json").read_bytes()))
    kineto(tmp_path / "elsewhere.json", one(102))
    for link in ("rank2.json", "rank3.json"):
        (run / link).symlink_to("../elsewhere.json")
    assert sorted(starts(load(run))) == [0, 1, 3]


def test_a_file_is_named_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    a = kineto(run / "rank0.json", one(100))
    (tmp_path / "link").symlink_to(a)
    for paths in ([a, a], [a, tmp_path / "link"], [run, a], [a, run], [run, run]):
        with pytest.raises(BubblescopeError, match="named twice, itself or its folder; name it on"):
            load_all(paths)


def test_a_circle_of_links_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(BubblescopeError, match="Too many levels of symbolic links"):
        load_all([tmp_path / "a", tmp_path / "b"])


def test_ranks_that_sglang_merged_into_one_file(tmp_path: Path) -> None:
    # Ids, devices and threads are the same in both; the text before a process tells them apart.
    events = []
    for rank in (1, 3):
        for number in (5, 6):
            at = 100 * number + rank
            call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": f"[TP0{rank}] 42"}
            run = {"cat": "kernel", "name": f"k{rank}", "pid": f"[TP0{rank}] 0"}
            call |= {"ph": "X", "tid": 9, "ts": at, "dur": 2, "args": {"correlation": number}}
            args = {"device": 0, "stream": 7, "correlation": number}
            events += [call, run | {"ph": "X", "tid": 7, "ts": at + 10, "dur": 5, "args": args}]
    path = tmp_path / "merged-1.trace.json"
    path.write_text(
        json.dumps(
            {
                "traceEvents": events,
                "baseTimeNanoseconds": 1_758 * 10**15,
                "distributedInfo": {"rank": 1},
            }
        )
    )
    got = load(path)
    assert list(zip(got.device_ops.rank, got.device_ops.name.to_list(), strict=True)) == [
        (1, "k1"), (1, "k1"), (3, "k3"), (3, "k3")
    ]  # fmt: skip
    assert got.host_calls.process.tolist() == [42] * 4
    found = diagnose(got)
    assert [d.window_ns for d in found.devices] == [105_000] * 2
    assert [d.parts_ns[Part.UNKNOWN] for d in found.devices] == [0] * 2
    assert found.health == ()
    path.write_text(json.dumps({"traceEvents": [e for e in events if e["cat"] != "kernel"]}))
    with pytest.raises(BubblescopeError, match=r"merge of ranks: \[TP01\] 2 launches, no GPU re"):
        load(path)


# Reports and the corpus ------------------------------------------------------------------------


def test_the_late_rank_of_two_files() -> None:
    # 35: an all-reduce of 5,100 us on rank 0 and 100 on rank 1, idle 5,000 under encode.
    timeline = load_all([need("reports/35_rank0.json"), need("reports/35_rank1.json")])
    said = diagnose(timeline).communication
    assert said is not None
    assert [x.busy_ns for x in said.devices] == [5_100 * US, 100 * US]
    assert [x.waiting_ns for x in said.devices] == [5_000 * US, 0]
    late = said.late[0]
    assert (late.rank, late.late_ns) == (1, 5_000 * US)
    assert late.doing[0].name == "tokenizer.py(12): encode"


def test_eight_ranks_of_a_folder() -> None:
    timeline = load(need("traces/dlrm_8rank"))
    files = sorted(need("traces/dlrm_8rank").iterdir())
    each = [load(path) for path in files]
    assert not len(timeline.health)
    assert timeline.meta.world_size == 8
    assert len(timeline.device_ops) == sum(len(t.device_ops) for t in each)
    whole = {d.rank: (d.busy_ns, d.window_ns) for d in diagnose(timeline).devices}
    for rank, alone in enumerate(each):
        (device,) = diagnose(alone).devices
        assert whole[rank] == (device.busy_ns, device.window_ns)
        (device,) = diagnose(ranks.only(timeline, rank)).devices
        assert whole[rank] == (device.busy_ns, device.window_ns)


def test_eight_ranks_merged_into_one_file(tmp_path: Path) -> None:
    merged: dict[str, Any] = {"traceEvents": []}
    for rank, path in enumerate(sorted(need("traces/dlrm_8rank").iterdir())):
        one_rank = json.loads(gzip.decompress(path.read_bytes()))
        for event in one_rank.pop("traceEvents"):
            merged["traceEvents"].append(event | {"pid": f"[TP{rank:02d}] {event['pid']}"})
        merged = one_rank | merged  # of other fields the first rank's stay
    (tmp_path / "merged.json").write_text(json.dumps(merged))
    found = diagnose(load(tmp_path / "merged.json"))
    same = diagnose(load(need("traces/dlrm_8rank")))
    assert [(d.rank, d.window_ns, d.busy_ns, dict(d.parts_ns)) for d in found.devices] == [
        (d.rank, d.window_ns, d.busy_ns, dict(d.parts_ns)) for d in same.devices
    ]
    assert (found.health, found.meta.world_size) == (same.health, 8)
