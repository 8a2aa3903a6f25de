"""What Kineto writes beside the kernels of collectives, in any shape that files have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bubblescope.ingest import load
from bubblescope.timeline import bscope
from tests.corpus import need


def kernel(number: int, **more: Any) -> list[dict[str, Any]]:
    call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
    op = {"cat": "kernel", "name": f"k{number}", "pid": 0, "tid": 7}
    args = {"device": 0, "stream": 7, "correlation": number}
    return [
        {"ph": "X", "ts": 100 * number, "dur": 5, "args": {"correlation": number}} | call,
        {"ph": "X", "ts": 100 * number + 10, "dur": 50, "args": args | more} | op,
    ]


def test_columns_of_collectives(tmp_path: Path) -> None:
    said = {
        "Collective name": "allreduce",
        "Process Group Name": "3",
        "Process Group Ranks": "[0, 1]",
        "Seq": 12,
    }
    events = [
        *kernel(1),
        *kernel(2, **said),
        *kernel(3, **(said | {"Process Group Ranks": [0, 1], "Seq": "13"})),
        *kernel(4, **{"Collective name": "broadcast"}),
        *kernel(5, **{"Collective name": 7, "Seq": 1}),  # no name: not said to be a collective
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    timeline = load(path)
    ops = timeline.device_ops
    assert ops.collective.to_list() == ["", "allreduce", "allreduce", "broadcast", ""]
    assert ops.group.to_list() == ["", "3 [0, 1]", "3 [0, 1]", "", ""]
    assert ops.sequence.tolist() == [-1, 12, 13, -1, -1]
    bscope.write(timeline, tmp_path / "saved.bscope")
    assert load(tmp_path / "saved.bscope") == timeline


def test_a_file_of_many_chunks(tmp_path: Path) -> None:
    # Events are decoded a few thousand at a time; each keeps what was said of it.
    events = [
        e
        for n in range(1, 6_000)
        for e in kernel(n, **({"Collective name": "c", "Seq": n} if n % 1_999 == 0 else {}))
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    ops = load(path).device_ops
    said = [row for row, name in enumerate(ops.collective.to_list()) if name]
    assert ops.correlation[said].tolist() == [1_999, 3_998, 5_997]
    assert ops.sequence[said].tolist() == [1_999, 3_998, 5_997]


def test_a_recording_of_one_rank_in_eight() -> None:
    # One of 929 operations says what it is: the all-gather of the INDEX's B200 file.
    ops = load(need("traces/tl_b200_eager.json.gz")).device_ops
    (row,) = [row for row, name in enumerate(ops.collective.to_list()) if name]
    assert ops.collective[row] == "_allgather_base"
    assert ops.group[row] == "3 [0, 1, 2, 3, 4, 5, 6, 7]"
    assert ops.name[row].startswith("ncclDevKernel_AllGather_RING_LL")
    assert ops.sequence[row] == -1
