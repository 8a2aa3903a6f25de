"""The table of the SGLang pair against sums made by plain loops over the profiler's own JSON."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
from bubblescope.kernels import tabulate
from tests.corpus import need

TRACES = Path(__file__).parents[1] / "traces"
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
LAUNCH = {"cuda_runtime", "cuda_driver"}


def counted(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Name -> (step, duration in ns) of each operation launched in step 0 or later.

    A step is what lies between two beginnings of scheduler.run_batch, of which there are nine; the
    last one has what follows too. Times are kept as decimals.
    """
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    begins = sorted(
        e["ts"]
        for e in events
        if e.get("name") == "scheduler.run_batch" and e.get("cat") == "user_annotation"
    )
    launched = {}
    for e in events:
        if e.get("cat") in LAUNCH and ("Launch" in e["name"] or "Mem" in e["name"]):
            launched[e["args"]["correlation"]] = e["ts"]
    found = defaultdict(list)
    for e in events:
        if e.get("cat") in DEVICE:
            step = bisect_right(begins, launched[e["args"]["correlation"]]) - 1
            if step >= 0:
                found[e["name"]].append((step, int(Decimal(e["dur"]) * 1000)))
    return found


@pytest.mark.parametrize("name", ["seqlen_sync", "no_sync"])
def test_every_row_of_the_pair(name: str) -> None:
    truth = counted(need(f"traces/sglang_ling3_h200_nextn_{name}.json.gz"))
    timeline = load(TRACES / f"ling3-h200-{name.replace('_', '-')}.bscope")
    table = tabulate(timeline, diagnose(timeline))
    assert table.steps == 9
    assert table.operations == sum(map(len, truth.values()))
    rows = {row.name: row for row in table.rows}
    assert set(rows) == set(truth)
    for kernel, operations in truth.items():
        row = rows[kernel]
        durations = sorted(ns for _, ns in operations)
        middle = len(durations) // 2
        median = (
            durations[middle]
            if len(durations) % 2
            else (durations[middle - 1] + durations[middle]) // 2
        )
        assert (row.calls, row.total_ns) == (len(durations), sum(durations))
        assert (row.min_ns, row.max_ns, row.median_ns) == (durations[0], durations[-1], median)
        below = [d for d in durations if sum(x <= d for x in durations) * 10 >= 9 * len(durations)]
        assert row.p90_ns == min(below)
        steps = [sum(ns for step, ns in operations if step == n) for n in range(9)]
        assert row.ns_per_step == sorted(steps)[4]
    assert table.durations_ns == sum(ns for ops in truth.values() for _, ns in ops)


def test_a_row_by_hand() -> None:
    """fused_moe_kernel: 90 launches in each of nine steps."""
    timeline = load(TRACES / "ling3-h200-seqlen-sync.bscope")
    moe = tabulate(timeline, diagnose(timeline)).rows[0]
    assert (moe.name, moe.calls, moe.where) == ("fused_moe_kernel", 9 * 90, "graph")
    assert (moe.total_ns, moe.min_ns, moe.max_ns) == (9_865_434, 5_312, 19_615)
    # The 405th and 406th of 810 are 7,936 and 16,480; the 729th is 18,497.
    assert (moe.median_ns, moe.p90_ns) == ((7_936 + 16_480) // 2, 18_497)
