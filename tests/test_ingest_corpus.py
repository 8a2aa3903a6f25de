"""Every well-formed Kineto file of the corpus, against the counts of its index."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from bubblescope.timeline import Timeline
from bubblescope.timeline.api import is_graph_launch, is_kernel_launch, is_sync, plain
from tests.corpus import need

WITH_OPERATIONS = [
    *(f"dlrm_8rank/rank{rank}.pt.trace.json.gz" for rank in range(8)),
    "hta_compare_base.json.gz",
    "hta_compare_test.json.gz",
    "hta_critical_path_alexnet.json.gz",
    "hta_cudagraph_16rank_rank0.json.gz",
    "hta_diff_control.json.gz",
    "hta_event_sync.json.gz",
    "hta_inference_rank1_old.json.gz",
    "hta_large_integer.json.gz",
    "hta_mi250_train.json.gz",
    "hta_ns_resolution.json.gz",
    "hta_simple_add.json.gz",
    "hta_triton_example.json.gz",
    "kineto_2021_resnet_w0.json.gz",
    "kineto_2026_before_fix.json",
    "malformed/gz_named_json.json",
    "malformed/json_named_gz.json.gz",
    "malformed/no_closing_bracket.json",
    "malformed/utf8_bom.json",
    "nanovllm_decode_gpu_0.json.gz",
    "nanovllm_decode_gpu_100.json.gz",
    "nanovllm_forward30.json.gz",
    "pt_single_sample.json.gz",
    "sglang_ling3_h200_nextn_no_sync.json.gz",
    "sglang_ling3_h200_nextn_seqlen_sync.json.gz",
    "switch_moe_busy.json.gz",
    "switch_moe_sync.json.gz",
    "tl_b200_eager.json.gz",
    "tl_h100_bert_small.json.gz",
    "tl_h100_owlv2.json.gz",
    "tl_h100_timesformer.json.gz",
    "tl_h100_vit_nsfw.json.gz",
    "tl_mi210_gpu_only.json.gz",
    "tl_mi300_qwen05b.json.gz",
    "tl_mi300_sglang_decode.json.gz",
    "tl_mi300_sglang_prefill_decode.json.gz",
    "tl_mi300_vllm_piecewise.json.gz",
    "tl_torch_compile_triton.json.gz",
    "tui_small.json",
]

NSYS = [
    "nsightful_t4_power_iteration.sqlite",
    "nsysai_2gpu_before.sqlite",
    "nsysai_h100_2gpu_1s.sqlite",
]
"""Nsight Systems exports that are read: test_ingest_nsys_corpus.py."""

REFUSED = {
    "hta_cpu_only_rank34.json.gz": "CPU-only trace: 4 framework ops, 0 Python frames",
    "hta_distributed_info_missing.json.gz": "CPU-only trace: 2,424 framework ops",
    "hta_cupti_profiler_range.json.gz": "77 launches, 77 cuda_profiler_range rows, no GPU record",
    "hta_execution_trace_et.json.gz": "a PyTorch execution trace",
    "hta_mtia_inference.json.gz": "1,313 mtia_ccp_events, 823 mtia_runtime rows of Meta MTIA: this",
    "kineto_tf_trace_viewer.json": "no CUDA or HIP device operation",
    "nanovllm_prefill.json": "1 CUDA call, none of them a launch, no GPU record",
    "pt_no_kernels.json": "7 CUDA calls, none of them a launch, no GPU record",
    "switch_moe_no_cuda_activity.json.gz": "4 CUDA calls, none of them a launch, no GPU record",
    "zoology_a100_launch_no_kernels.json.gz": "260 launches, no GPU record: the capture lost",
    "tl_sglang_execution_details.json": "1 entry, but no event with a duration",
    "aiu_allreduce_tp4.json": "this device's rows are not known to bubblescope",
    "aiu_meta_only.json": "4 entries, but no event with a duration",
    "msprof_ascend_trace_view.json.gz": "this device's rows are not known to bubblescope",
    "jax_graph_pdl.nsys-rep": "is an Nsight Systems report of version 2025.5.1, and nsys, which",
    "lfs_pointer.pt.trace.json": "a Git LFS pointer",
    "ecf_titan_baseline_nvtx_only.sqlite": "recorded without the CUDA trace: 1,824 NVTX events, no",
    "malformed/truncated_gzip.json.gz": "gzip data ends early, at byte 42,875, with 1,035 whole",
    "malformed/truncated_json.json": "in the middle of an event, at byte 29,669, with 109 whole",
    "malformed/empty.json": "is empty",
}


@cache
def index() -> dict[str, dict[str, str]]:
    """The table of INDEX.md: file name to column name to cell."""
    head: list[str] = []
    rows = {}
    for line in need("INDEX.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if cells[0] == "file":
            head = cells
        elif head and len(cells) >= len(head) and cells[0].startswith("`"):
            rows[cells[0].strip("`")] = dict(zip(head, cells, strict=False))
    return rows


@cache
def timeline(name: str) -> Timeline:
    path = need(f"traces/{name}")
    before = path.stat()
    got = load(path)
    after = path.stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)
    return got


def test_no_file_of_the_corpus_is_forgotten() -> None:
    assert set(index()) == {*WITH_OPERATIONS, *NSYS, *REFUSED}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no nsys, which would read a report
    with pytest.raises(BubblescopeError) as error:
        load(need(f"traces/{name}"))
    text = str(error.value)
    assert REFUSED[name] in text
    assert text.isprintable()
    assert "; " in text


def busy_and_gap(start: Any, end: Any) -> tuple[int, int, int]:
    """Union of the intervals, their span, and the largest gap between them, ns."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - reach[:-1], 0)
    span = int(reach[-1] - start[0])
    return span - int(gaps.sum()), span, int(gaps.max(initial=0))


@pytest.mark.parametrize("name", WITH_OPERATIONS)
def test_counts_are_those_of_the_index(name: str) -> None:
    row, got = index()[name], timeline(name)
    ops, calls, ranges = got.device_ops, got.host_calls, got.ranges
    kernels = ops.take(ops.kind.where("kernel".__eq__))
    assert len(kernels) == int(row["kernels"])
    assert len(calls) == int(row["runtime/driver calls"])

    def named(*stems: str) -> int:
        return int(calls.name.where(lambda n: is_sync(n) and any(s in n for s in stems)).sum())

    syncs = named("Stream"), named("Device", "Ctx", "Thread"), named("Event")
    assert "/".join(map(str, syncs)) == row["sync st/dev/ev"]
    copies = ops.kind.where("memcpy".__eq__) & ops.name.where(lambda n: "DtoH" in n)
    assert int(copies.sum()) == int(row["DtoH copies"])
    items = {"aten::item", "aten::_local_scalar_dense"}
    item = ranges.kind.where("op".__eq__) & ranges.name.where(items.__contains__)
    assert int(item.sum()) == int(row["item"])
    python = int(ranges.kind.where("python".__eq__).sum())
    assert python == int(row["python_function"].split(" ")[0])
    launched = calls.name.where(is_graph_launch)
    in_graphs = int(np.isin(kernels.correlation, calls.correlation[launched]).sum())
    graphs = row["CUDA/HIP graph launches"]
    assert int(launched.sum()) == int(graphs.split(" ")[0].replace("no", "0"))
    if graphs != "no":
        assert f"({in_graphs} kernels)" in graphs
    assert got.meta.level == ("node" if in_graphs else "")
    if row["GPU ops without host call"] != "-":
        distinct = np.unique(ops.correlation)
        missing = int((~np.isin(distinct, calls.correlation)).sum())
        assert missing == int(row["GPU ops without host call"])
    if name == "malformed/no_closing_bracket.json":  # what made the index read no rank of it
        row = index()["malformed/utf8_bom.json"]
        assert got.tables() | {"health": None} == timeline("malformed/utf8_bom.json").tables() | {
            "health": None
        }
    rank, _, world = row["rank"].removeprefix("r").partition("/")
    assert set(ops.rank.tolist()) == {int(rank) if rank.isdigit() else 0}
    assert got.meta.world_size == (int(world) if world.isdigit() else 1)

    busy, span, gap = busy_and_gap(ops.start, ops.end)
    assert len(np.unique(ops.device)) == 1
    assert 100 * busy / span == pytest.approx(float(row["GPU busy %"]), abs=0.051)
    assert gap / 1e6 == pytest.approx(float(row["largest gap ms"]), abs=0.051)
    noted = ["kineto_2026_before_fix.json", "malformed/no_closing_bracket.json"]
    assert not len(got.health) or name in noted


def exactly(path: Path) -> list[dict[str, Any]]:
    """The complete events of a file, times in ns by way of `Decimal`: slow, and plainly right."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    document = json.loads(content, parse_float=Decimal)
    events = document["traceEvents"] if isinstance(document, dict) else document
    base = document.get("baseTimeNanoseconds", 0) if isinstance(document, dict) else 0
    found = [e for e in events if e.get("ph") == "X"]
    for event in found:
        event["start"] = int(event["ts"] * 1000) + base
        event["end"] = event["start"] + int(event["dur"] * 1000)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "sglang_ling3_h200_nextn_no_sync.json.gz",
        "sglang_ling3_h200_nextn_seqlen_sync.json.gz",
        "hta_ns_resolution.json.gz",
        "nanovllm_forward30.json.gz",
        "tl_b200_eager.json.gz",
        "tl_mi300_sglang_decode.json.gz",
    ],
)
def test_times_are_exact_to_the_nanosecond(name: str) -> None:
    got, events = timeline(name), exactly(need(f"traces/{name}"))
    assert got.meta.base_ns == base_of(name)

    def rows(*categories: str) -> list[dict[str, Any]]:
        return [e for e in events if e["cat"] in categories]

    ops = got.device_ops
    assert sorted(
        zip(
            ops.name.to_list(), ops.start.tolist(), ops.end.tolist(), ops.device.tolist(),
            ops.stream.tolist(), ops.correlation.tolist(), strict=True,
        )
    ) == sorted(
        (e["name"], e["start"], e["end"], e["args"]["device"], e["args"]["stream"],
         e["args"]["correlation"])
        for e in rows("kernel", "gpu_memcpy", "gpu_memset")
    )  # fmt: skip
    calls = got.host_calls
    assert sorted(
        zip(
            calls.name.to_list(), calls.start.tolist(), calls.end.tolist(),
            calls.thread.tolist(), calls.correlation.tolist(), strict=True,
        )
    ) == sorted(
        (e["name"], e["start"], e["end"], e["tid"], e["args"]["correlation"])
        for e in rows("cuda_runtime", "cuda_driver")
    )  # fmt: skip
    ranges = got.ranges
    assert sorted(zip(ranges.start.tolist(), ranges.end.tolist(), strict=True)) == sorted(
        (e["start"], e["end"])
        for e in rows("user_annotation", "cpu_op", "python_function", "overhead")
    )


def base_of(name: str) -> int:
    content = gzip.decompress(need(f"traces/{name}").read_bytes())
    base: int = json.loads(content).get("baseTimeNanoseconds", 0)
    return base


@pytest.mark.parametrize(
    ("name", "copies", "syncs", "launches", "ops"),
    [
        ("sglang_ling3_h200_nextn_seqlen_sync.json.gz", 140, 10, 9_909 - 9_360, 4_204),
        ("sglang_ling3_h200_nextn_no_sync.json.gz", 110, 0, 9_899 - 9_360, 3_724),
    ],
)
def test_the_sglang_pair(name: str, copies: int, syncs: int, launches: int, ops: int) -> None:
    got = timeline(name)
    assert int(got.device_ops.kind.where("memcpy".__eq__).sum()) == copies
    calls = got.host_calls.name
    assert int(calls.where("cudaStreamSynchronize".__eq__).sum()) == syncs
    assert int(calls.where(is_kernel_launch).sum()) == launches
    assert int(calls.where(lambda n: plain(n) == "cudaGraphLaunch").sum()) == 30
    assert int(got.ranges.kind.where("op".__eq__).sum()) == ops
    assert got.meta.level == "node"
    assert [(d.index, d.name, d.multiprocessors) for d in got.meta.devices] == [
        (0, "NVIDIA H200", 132)
    ]
    assert got.meta.versions["CUDA runtime"] == "13.0"
    assert "sglang::scheduler" in {t.name for t in got.meta.threads}
    assert np.unique(got.device_ops.process).tolist() == np.unique(got.host_calls.process).tolist()


def test_sync_rows_of_a_recording() -> None:
    calls = timeline("hta_event_sync.json.gz").host_calls
    by_name = {
        calls.name[i]: (
            calls.sync[i], calls.stream[i], calls.event_stream[i], calls.event_record[i],
        )
        for i in range(len(calls))
        if calls.sync[i]
    }  # fmt: skip
    assert by_name == {
        "cudaStreamSynchronize": ("stream", 7, -1, -1),
        "cudaEventSynchronize": ("event", -1, 7, 1533),
        "cudaEventQuery": ("event", -1, 7, 1533),
        "cudaDeviceSynchronize": ("context", -1, -1, -1),
    }


def test_frames_of_a_recording() -> None:
    got = timeline("nanovllm_decode_gpu_0.json.gz")
    python = got.ranges.take(got.ranges.kind.where("python".__eq__))
    assert not python.name.where(lambda n: " at 0x" in n).any()
    framed = python.take(python.frame >= 0)
    names = framed.name.to_list()
    sites = [
        f"{got.frames.file[f]}({got.frames.line[f]}): {got.frames.function[f]}"
        for f in framed.frame.tolist()
    ]
    assert sites == names
    assert len(set(names)) == len(got.frames)


@pytest.mark.parametrize(
    ("number", "kernels", "calls"),
    [("01", 30, 3), ("04", 3, 7), ("06", 16, 40), ("10", 20, 28), ("15", 2, 4), ("36", 3, 4)],
)
def test_reports(number: str, kernels: int, calls: int) -> None:
    got = load(need(f"reports/{number}.json"))
    assert int(got.device_ops.kind.where("kernel".__eq__).sum()) == kernels
    assert len(got.host_calls) == calls


def test_report_of_a_lost_gpu_side() -> None:
    with pytest.raises(BubblescopeError, match="5 launches, no GPU record: the capture lost"):
        load(need("reports/05.json"))


def test_report_of_zero_timestamps() -> None:
    got = load(need("reports/22.json"))
    assert got.health.kind.to_list() == ["zero timestamp"]
    assert got.health.count.tolist() == [2]
    assert np.diff(got.device_ops.start).max() < 1_000_000
