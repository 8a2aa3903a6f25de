"""The pair of SGLang recordings that ship, and of the embedded loop: what one read-back cost.

Counts are those of tests/test_sglang_pair.py and of the corpus's index, made by other programs.
"""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from bubblescope.compare import Comparison, Run, compare
from bubblescope.compare.model import State, Verdict
from bubblescope.diagnose.model import Part
from bubblescope.ingest import load
from bubblescope.report import comparison as report
from tests.corpus import need

TRACES = Path(__file__).parents[1] / "traces"


@cache
def pair(a: str, b: str, window: tuple[int, int] | None = None) -> Comparison:
    sides = [Run.of(load(TRACES / f"{name}.bscope"), window=window) for name in (a, b)]
    return compare(*sides)


def sglang() -> Comparison:
    return pair("ling3-h200-seqlen-sync", "ling3-h200-no-sync")


def test_the_step():
    found = sglang()
    assert (found.a.steps, found.b.steps) == (9, 9)
    assert (found.step.a // 1000, found.step.b // 1000) == (8_690, 7_504)
    assert found.step.beyond is True
    assert (found.parts[Part.HOST_GAP].b // 1000, found.parts[Part.LAUNCH_CALL].b // 1000) == (
        303,
        982,
    )
    assert found.parts[Part.GRAPH_GAP].beyond is False
    assert found.notes == ()


def test_one_read_a_step_is_gone_and_the_idle_that_it_exposed():
    gone = [c.a for c in sglang().reads if c.b is None]
    (read,) = gone
    assert (read.name, read.under, read.calls, read.calls_per_step) == (
        "cudaStreamSynchronize",
        "scheduler.run_batch",
        10,
        1.0,
    )
    assert (read.exposed_idle_ns_per_step, read.exposed_idle_ns) == (828_943, 6_906_507)
    assert [c for c in sglang().reads if c.a is None] == []
    findings = sglang().findings
    assert [c.a.kind for c in findings if c.b is None] == ["blocking read"]
    assert [c for c in findings if c.a is None] == []


def test_thirty_copies_ten_launches_and_480_framework_ops_fewer():
    found = sglang()
    kinds = {c.name: c for c in found.kinds}
    copies = {name: c.in_all for name, c in kinds.items() if c.group == "copy"}
    assert copies == {"copy DtoH": -10, "copy HtoD": -20, "copy DtoD": 0}
    assert (kinds["kernel"].count_a, kinds["kernel"].count_b) == (9_909, 9_899)
    assert kinds["memset"].in_all == 0
    launches = {c.name: c.in_all for c in found.calls if c.group == "launch"}
    assert launches == {
        "cudaLaunchKernel": -10,
        "cuLaunchKernelEx": 0,
        "cudaLaunchKernelExC": 0,
        "cudaGraphLaunch": 0,
    }
    assert sum(c.in_all for c in found.ops) == -480


def test_device_work_is_unchanged_but_for_what_the_read_back_did():
    work = sglang().device_work
    assert work.verdict is Verdict.NEARLY
    assert {(c.name, c.count.a, c.count.b) for c in work.differing} == {
        ("Memcpy DtoH (Device -> Pinned)", 3, 2),
        ("Memcpy HtoD (Pinned -> Device)", 2, 0),
        ("at::native::vectorized_elementwise_kernel", 76, 75),
        ("compute_position_kernel", 1, 0),
        ("_prepare_draft_extend_lengths_kernel", 0, 1),
    }
    assert sglang().busy.beyond is False
    states = {c.name: c.state for c in sglang().families}
    assert states["compute_position_kernel"] is State.VANISHED
    assert states["_prepare_draft_extend_lengths_kernel"] is State.APPEARED
    assert states["fused_moe_kernel"] is State.SAME


def test_the_summary_says_it():
    said = report.summary(sglang())
    assert said[0].startswith("B's step is 1,186 us (13.6 %) shorter: 8,690 to 7,504 us")
    assert said[1:3] == [
        "Gone: cudaStreamSynchronize in scheduler.run_batch, 1.0 a step, and the 829 us a step of "
        "idle that it exposed.",
        "In all 30 copies, 10 launches and 480 framework ops fewer.",
    ]
    assert said[3].startswith("Device work unchanged but for 5 families of operations, 7.6 us")


def test_the_profiler_s_own_files_say_the_same():
    files = [
        need(f"traces/sglang_ling3_h200_nextn_{name}.json.gz")
        for name in ("seqlen_sync", "no_sync")
    ]
    found, shipped = compare(*(Run.of(load(file)) for file in files)), sglang()
    assert (found.step, found.kinds, found.families) == (
        shipped.step,
        shipped.kinds,
        shipped.families,
    )
    assert report.summary(found) == report.summary(shipped)


def test_the_embedded_loop():
    found = pair("ling3-loop-h200", "ling3-loop-h200-seq-len-sync", (200, 210))
    (read,) = [c.a for c in found.reads if c.b is None]
    assert (read.site.line, read.site.function, read.calls) == (123, "Scheduler._read_length", 10)
    assert {c.name: (c.count_a, c.count_b) for c in found.kinds} == {
        "graph": (40, 40),
        "copy DtoH": (20, 10),
        "copy HtoD": (20, 0),
    }
    assert found.device_work.verdict is Verdict.NEARLY
    assert found.notes == (
        "graph replays were recorded whole: what is inside them is not compared",
    )


@pytest.mark.parametrize("width", [24, 60, 100, 200])
@pytest.mark.parametrize("plain", [True, False])
def test_every_line_fits(width, plain):
    out = io.StringIO()
    report.render(sglang(), Console(file=out, width=width, no_color=plain), top=3)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "… and 4 more" in out.getvalue()  # of seven families: five by count, two by time
