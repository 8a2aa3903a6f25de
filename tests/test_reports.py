"""Inputs made from public reports: the figures that follow from their events, to the nanosecond."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Diagnosis, Part
from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from bubblescope.report.as_json import to_json
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import IntervalIndex
from optimizations import passes_for
from tests.corpus import need
from tests.report_figures import EXPECTED, READS, STEPS

ALL = [*EXPECTED, "18"]  # but for 05, which is refused


@cache
def _seen(path: Any) -> tuple[Timeline, Diagnosis]:
    timeline = load(path)
    return timeline, diagnose(timeline)


def seen(entry: str) -> tuple[Timeline, Diagnosis]:
    return _seen(need(f"reports/{entry}.json"))


def told(entry: str) -> dict[str, Any]:
    """The JSON report, made as `bubblescope diagnose --json` makes it."""
    _, diagnosis = seen(entry)
    passes = {n: passes_for(f.kind, f.call) for n, f in enumerate(diagnosis.findings)}
    report: dict[str, Any] = json.loads(to_json(diagnosis, passes))
    return report


@pytest.mark.parametrize("entry", EXPECTED)
def test_totals(entry: str) -> None:
    expected, report = EXPECTED[entry], told(entry)
    parts = {name: 1000 * expected.parts.get(name, 0) for name in report["parts_ns"]}
    unknown = parts["unknown"]
    assert report["parts_ns"] == parts
    assert report["window_ns"] == 1000 * expected.window
    assert report["busy_ns"] == 1000 * expected.busy
    assert report["unknown_ns"] == unknown
    assert report["idle_ns"] == 1000 * (expected.window - expected.busy) - unknown
    assert (report["operations"], report["overlapped_ns"]) == (expected.operations, 0)


@pytest.mark.parametrize("entry", EXPECTED)
def test_bubbles(entry: str) -> None:
    _, diagnosis = seen(entry)
    (device,) = diagnosis.devices
    lengths = (device.bubbles.end - device.bubbles.start).tolist()
    expected = [1000 * long for count, long in EXPECTED[entry].bubbles for _ in range(count)]
    assert sorted(lengths) == sorted(expected)


@pytest.mark.parametrize("entry", EXPECTED)
def test_what_filled_the_host_gaps(entry: str) -> None:
    found = {(f["doing"], f["name"]): f["ns"] for f in told(entry)["host_gap"]}
    assert found == {key: 1000 * long for key, long in EXPECTED[entry].fillers.items()}


def test_nanoseconds() -> None:
    # 18, in ns: busy [1040750,1050875) and [1061000,1064000); the second call [1055500,1060002).
    report = told("18")
    assert (report["window_ns"], report["busy_ns"]) == (23_250, 10_125 + 3_000)
    assert {n: v for n, v in report["parts_ns"].items() if v} == {
        "host gap": 4_625,
        "launch call": 4_502,
        "launch latency": 998,
    }
    (filler,) = report["host_gap"]
    assert (filler["name"], filler["ns"]) == ("aten::relu", 4_625)


def test_a_child_may_outlast_its_parent() -> None:
    # 18: linear [1000001,1050001), addmm [1010500,1050002), relu [1050002,1060002), in ns.
    timeline, _ = seen("18")
    ranges = timeline.ranges
    index = IntervalIndex(ranges.start, ranges.end)
    launches = timeline.host_calls.start
    inner = index.innermost(launches)
    outer = index.enclosing(inner, launches)
    assert [ranges.name[row] for row in inner] == ["aten::addmm", "aten::relu"]
    assert ranges.name[outer[0]] == "aten::linear"
    assert outer[1] == -1


@pytest.mark.parametrize("entry", ALL)
def test_no_part_is_negative_and_each_fills_its_bubbles(entry: str) -> None:
    _, diagnosis = seen(entry)
    (device,) = diagnosis.devices
    pieces = device.pieces
    assert (pieces.end > pieces.start).all()
    for row, (start, end) in enumerate(zip(device.bubbles.start, device.bubbles.end, strict=True)):
        mine = pieces.bubble == row
        edges = [*pieces.start[mine].tolist(), int(end)]
        assert edges == [int(start), *pieces.end[mine].tolist()]


@pytest.mark.parametrize("entry", ALL)
def test_reads(entry: str) -> None:
    found = [
        (
            r["name"],
            r["under"],
            r["calls"],
            r["waited"],
            r["blocked_ns"],
            r["exposed_idle_ns"],
            r["idle_after_ns"],
        )
        for r in told(entry)["reads"]
    ]
    assert found == [(*r[:4], *(1000 * ns for ns in r[4:])) for r in READS.get(entry, [])]


# Steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", STEPS)
def test_steps(entry: str) -> None:
    words, durations = STEPS[entry]
    steps = told(entry)["steps"]
    assert [s["duration_ns"] for s in steps["each"]] == [1000 * us for us in durations]
    assert all(s["whole"] for s in steps["each"])
    assert [s["counted"] for s in steps["each"]] == [False] + [True] * (len(durations) - 1)
    assert (steps["count"], steps["median_ns"]) == (len(durations), 1000 * durations[-1])
    assert all(word in steps["marker"] for word in words)


def test_operations_belong_to_the_step_that_launched_them() -> None:
    # 08: four of 100 a step, though all run after the last step's marker ended.
    _, diagnosis = seen("08")
    (device,) = diagnosis.devices
    assert device.steps.busy_ns.tolist() == [400_000] * 4
    report = told("08")
    assert any("step[DECODE]" in doubt for doubt in report["warnings"])


def test_a_read_back_every_step() -> None:
    (read,) = told("10")["reads"]
    assert read["within"] == ["aten::item", "aten::_local_scalar_dense"]
    assert read["calls_per_step"] == 1
    assert read["exposed_idle_ns_per_step"] == 4_008_000
    assert read["idle_after_ns_per_step"] == 7_997_000


def test_reads_are_counted_by_step_and_op() -> None:
    assert [r["calls_per_step"] for r in told("12")["reads"]] == [1, 1, 1]


# What was lost, dropped or skewed --------------------------------------------------------------


def test_launches_lost_at_the_start() -> None:
    report = told("04")
    (note,) = report["health"]
    assert note["count"] == 3
    assert "start" in note["note"]
    assert any("3 of 6 launches" in doubt and "start" in doubt for doubt in report["warnings"])


def test_launches_lost_throughout() -> None:
    report = told("06")
    (note,) = report["health"]
    assert note["count"] == 18
    assert "18 of 20 graph launches" in note["note"]
    assert any("18 of 20" in doubt for doubt in report["warnings"])
    assert (report["steps"]["count"], report["steps"]["median_ns"]) == (0, None)
    assert report["findings"] == []


def test_no_device_record_at_all() -> None:
    path = need("reports/05.json")
    with pytest.raises(BubblescopeError, match="5 launches, no GPU record"):
        load(path)
    command = [sys.executable, "-m", "bubblescope", "diagnose", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    for word in ("5 launches", "lost the GPU side", "warm-up", "CUPTI", "profiler"):
        assert word in done.stderr
    assert "idle" not in done.stderr


def test_kernels_that_begin_before_their_launch() -> None:
    # 21: 3 early, each. Links stay: each of the five bubbles is ended by its own call.
    timeline, diagnosis = seen("21")
    (device,) = diagnosis.devices
    calls = timeline.host_calls
    assert calls.correlation[device.bubbles.launch].tolist() == [102, 103, 104, 105, 106]
    report = told("21")
    assert report["clocks"] == {"low_ns": 3_000, "high_ns": None, "shift_ns": 3_000}
    (note,) = report["health"]
    assert "skew" in note["kind"]
    assert all(f["exposed_idle_ns"] >= 0 for f in report["findings"])
    assert {f["kind"] for f in report["findings"]} == {"host gap"}


def test_kernels_without_times() -> None:
    dropped = next(h for h in told("22")["health"] if "dropped" in h["note"])
    assert dropped["count"] == 2


# Who is to blame -------------------------------------------------------------------------------


def test_nothing_to_gain_from_a_wait_that_the_device_works_through() -> None:
    # 13: 33 of 40,040, so no finding reaches a tenth of a per cent.
    report = told("13")
    assert all(f["share"] < 0.001 for f in report["findings"])


def test_replays_are_joined_to_their_launch() -> None:
    # 17: 6 of 8 kernels; the other two have calls of their own.
    timeline, diagnosis = seen("17")
    (device,) = diagnosis.devices
    ops, calls = timeline.device_ops, timeline.host_calls
    graph = calls.correlation[calls.name.where(lambda name: name == "cudaGraphLaunch")]
    assert (ops.correlation == graph[0]).sum() == 6
    assert [calls.name[row] for row in device.bubbles.launch] == [
        "cudaGraphLaunch",
        "cudaLaunchKernel",
    ]
    assert device.parts_ns[Part.GRAPH_GAP] == 0


def test_the_annotation_that_fills_a_gap_repeats_once_a_worker() -> None:
    sends = next(f for f in told("11")["host_gap"] if f["name"] == "send_schedule_seqs")
    assert sends["count"] == 4 * 2


def test_the_allocator_and_the_op_that_asked() -> None:
    finding = told("31")["findings"][0]
    assert finding["kind"] == "host gap"
    for name in ("cudaFree", "cudaMalloc", "aten::empty"):
        assert name in finding["why"]


def test_the_profiler_owns_what_it_did() -> None:
    # 36: the closing sync is in no finding; the profiler's work is named in the gap's.
    finding = told("36")["findings"][0]
    assert (finding["kind"], finding["exposed_idle_ns"]) == ("host gap", 3_850_000)
    assert "Activity Buffer Request" in finding["why"]
    assert not any(f["kind"] == "blocking read" for f in told("36")["findings"])


def test_count_is_of_records_not_of_pieces() -> None:
    # 31: one aten::empty, cut in two by the cudaMalloc in it. 09, over 2 gaps: schedule in each;
    # execute_model and step end in the first, a new one of each begins, and ends in the second,
    # where the third of each begins.
    empty = next(f for f in told("31")["host_gap"] if f["name"] == "aten::empty")
    assert empty["count"] == 1
    counts = {f["name"]: f["count"] for f in told("09")["host_gap"]}
    assert counts["scheduler.py(88): schedule"] == 2
    assert counts["model_runner.py(40): execute_model"] == 3
    assert counts["engine.py(210): step"] == 3


def test_allocator_calls_are_a_cause_of_their_own_with_the_op_that_asked() -> None:
    # 31: of the gap from 3,010, cudaFree fills up to 5,025 and cudaMalloc 5,030 to 6,930.
    calls = {f["name"]: f for f in told("31")["host_gap"] if f["doing"] == "allocator"}
    assert {name: f["ns"] for name, f in calls.items()} == {
        "cudaFree": 2_015_000,
        "cudaMalloc": 1_900_000,
    }
    assert {f["under"] for f in calls.values()} == {"aten::empty"}
    (finding,) = (f for f in told("31")["findings"] if f["kind"] == "allocator")
    assert finding["exposed_idle_ns"] == 3_915_000
    assert "aten::empty" in finding["why"]
