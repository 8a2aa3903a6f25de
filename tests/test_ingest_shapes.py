"""Grids and blocks of kernels, from every kind of recording that has them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from bubblescope.diagnose import diagnose
from bubblescope.export import chrome
from bubblescope.ingest import load
from bubblescope.timeline import bscope
from bubblescope.timeline.shapes import shape
from tests.corpus import need
from tests.synthetic import TraceBuilder

MOST = 2**31 - 1, 65_535, 65_535


def test_sizes_as_text():
    x, y, z = (
        np.array(sizes) for sizes in zip((84, 2, 1), MOST, (0, 1, 1), (-1, 1, 1), strict=True)
    )
    assert shape(x, y, z).to_list() == ["84,2,1", "2147483647,65535,65535", "", ""]
    none = np.full(2, np.iinfo(np.int64).min)
    assert shape(none, none, none).to_list() == ["", ""]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"grid": [84, 2, 1], "block": [128, 1, 1]}, ("84,2,1", "128,1,1")),
        ({"grid": [1, 1, 1], "block": [0, 1, 1]}, ("", "")),
        ({"grid": "84", "block": {"x": 1}}, ("", "")),
        ({}, ("", "")),
    ],
)
def test_from_the_profiler(tmp_path: Path, given: dict[str, object], read: tuple[str, str]):
    path = TraceBuilder().launch("gemm", 0, 5_000, 10_000, 50_000).write_kineto(tmp_path / "a.json")
    trace = json.loads(path.read_text())
    kernel = next(e for e in trace["traceEvents"] if e.get("cat") == "kernel")
    kernel["args"].pop("grid", None)
    kernel["args"].pop("block", None)
    kernel["args"] |= given
    path.write_text(json.dumps(trace))
    ops = load(path).device_ops
    assert (ops.grid.to_list(), ops.block.to_list()) == ([read[0]], [read[1]])


def test_they_are_kept_in_both_of_our_own_files(tmp_path: Path):
    trace = TraceBuilder()
    for k in range(2):
        trace.launch(
            "a", 100_000 * k, 5_000, 100_000 * k + 10_000, 50_000, grid="84,2,1", block="64,1,1"
        )
        trace.memset(100_000 * k + 6_000, 1_000, 100_000 * k + 61_000, 1_000)
    timeline = trace.timeline()
    bscope.write(timeline, tmp_path / "a.bscope")
    chrome.write(timeline, diagnose(timeline), tmp_path / "a.json", force=False)
    for name in ("a.bscope", "a.json"):
        ops = load(tmp_path / name).device_ops
        assert ops.grid.to_list() == ["84,2,1", ""] * 2
        assert ops.block.to_list() == ["64,1,1", ""] * 2


def test_from_nsight_systems():
    path = need("traces/nsysai_h100_2gpu_1s.sqlite")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        rows = database.execute(
            "SELECT gridX || ',' || gridY || ',' || gridZ, "
            "blockX || ',' || blockY || ',' || blockZ, count(*) "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1, 2"
        ).fetchall()
    ops = load(path).device_ops
    kernels = ops.take(ops.kind.where(lambda kind: kind == "kernel"))
    found: dict[tuple[str, str], int] = {}
    for pair in zip(kernels.grid.to_list(), kernels.block.to_list(), strict=True):
        found[pair] = found.get(pair, 0) + 1
    assert found == {(grid, block): count for grid, block, count in rows}
