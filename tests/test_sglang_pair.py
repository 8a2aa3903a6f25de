"""The recordings that ship: ten steps of SGLang, with its sequence-length read-back and without.

Figures are those worked out in the design and counted in the corpus's index by other programs.
"""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Diagnosis, Part
from bubblescope.ingest import load
from bubblescope.report import terminal
from bubblescope.report.as_json import to_json
from bubblescope.timeline import Timeline
from tests.corpus import need

TRACES = Path(__file__).parents[1] / "traces"
SYNC, NO_SYNC = "seqlen-sync", "no-sync"
PAIR = [SYNC, NO_SYNC]
VERIFY_NODES = 738
"""Operations of the verify graph, the largest of three; each ran once a step."""


@cache
def seen(name: str) -> tuple[Timeline, Diagnosis]:
    timeline = load(TRACES / f"ling3-h200-{name}.bscope")
    return timeline, diagnose(timeline)


def told(diagnosis: Diagnosis) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(to_json(diagnosis, {}))
    return report


def whole_us(ns: int | None) -> int:
    assert ns is not None
    return ns // 1000


# Steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "median_us"), [(SYNC, 8_690), (NO_SYNC, 7_504)])
def test_nine_whole_steps(name: str, median_us: int) -> None:
    _, diagnosis = seen(name)
    steps = told(diagnosis)["steps"]
    assert diagnosis.marker == "scheduler.run_batch"
    assert (steps["count"], len(steps["each"])) == (9, 10)
    # The recording begins within a step, which is not one of the nine.
    assert [s["whole"] for s in steps["each"]] == [False] + [True] * 9
    assert whole_us(steps["median_ns"]) == median_us


@pytest.mark.parametrize(
    ("name", "busy", "largest_gap_ms"), [(SYNC, 63.7, 3.6), (NO_SYNC, 74.8, 1.1)]
)
def test_busy_as_the_index_counts_it(name: str, busy: float, largest_gap_ms: float) -> None:
    (device,) = seen(name)[1].devices
    assert round(100 * device.busy_ns / device.window_ns, 1) == busy
    longest = int((device.bubbles.end - device.bubbles.start).max())
    assert round(longest / 1e6, 1) == largest_gap_ms


@pytest.mark.parametrize("name", PAIR)
def test_every_nanosecond_is_in_one_part(name: str) -> None:
    (device,) = seen(name)[1].devices
    assert device.busy_ns + sum(device.parts_ns.values()) == device.window_ns
    assert int((device.steps.end - device.steps.start).sum()) == device.window_ns
    assert device.unknown_ns == 0
    assert device.parts_ns[Part.UNRESOLVED] == 0
    by_step = device.steps.busy_ns + device.steps.parts_ns.sum(axis=1)
    assert by_step.tolist() == device.steps.length_ns.tolist()


def test_where_a_step_goes_without_the_read() -> None:
    parts = told(seen(NO_SYNC)[1])["steps"]["parts_ns"]
    assert whole_us(parts["host gap"]) == 303
    assert whole_us(parts["launch call"]) == 982
    assert whole_us(parts["graph gap"]) == 296
    assert whole_us(parts["launch latency"]) + whole_us(parts["device gap"]) == 89
    assert parts["read tail"] == 0


# The read --------------------------------------------------------------------------------------


def test_the_read_back_comes_first() -> None:
    timeline, diagnosis = seen(SYNC)
    read = diagnosis.reads[0]
    assert read.name == "cudaStreamSynchronize"
    assert read.within == ("scheduler.run_batch",)
    assert (read.calls, read.calls_per_step) == (10, 1.0)
    calls = timeline.host_calls
    rows = np.flatnonzero(calls.name.where(lambda call: call == "cudaStreamSynchronize"))
    blocked = np.sort((calls.end - calls.start)[rows]).tolist()
    assert [whole_us(ns) for ns in blocked[:3]] == [15, 167, 710]
    assert whole_us(blocked[-1]) == 973
    assert read.blocked_ns == sum(blocked)
    # The first call, of 15,075 ns, began 17.7 us after its copy had ended: it waited for nothing.
    # The other nine are exposed to the last nanosecond.
    assert read.waited == 9
    assert read.exposed_idle_ns == sum(blocked[1:]) == 6_906_507


def test_what_the_read_back_costs_a_step() -> None:
    # The middle two of the ten calls: 827,072 and 830,815 ns.
    read = seen(SYNC)[1].reads[0]
    assert read.blocked_ns_per_step == read.exposed_idle_ns_per_step == 828_943


def test_the_finding_names_the_read() -> None:
    findings = seen(SYNC)[1].findings
    (found,) = [f for f in findings if f.kind == "blocking read"]
    assert (found.call, found.ranked) == ("cudaStreamSynchronize", True)
    assert found.exposed_idle_ns_per_step == 828_943
    assert round(100 * found.share, 1) == 9.5  # of 8,690 us


def test_no_read_back_in_the_other() -> None:
    _, diagnosis = seen(NO_SYNC)
    assert "cudaStreamSynchronize" not in {r.name for r in diagnosis.reads}
    assert all(r.exposed_idle_ns == 0 for r in diagnosis.reads)
    assert all(f.kind != "blocking read" for f in diagnosis.findings)


# The launch of the verify graph ----------------------------------------------------------------


def verify_bubbles(name: str) -> list[tuple[int, dict[Part, int], set[str]]]:
    """For each replay: the bubble before its first node, its parts, and the calls in them."""
    timeline, diagnosis = seen(name)
    (device,) = diagnosis.devices
    ops, calls = timeline.device_ops, timeline.host_calls
    launches, sizes = np.unique(ops.correlation, return_counts=True)
    found = []
    for launch in launches[sizes == VERIFY_NODES].tolist():
        first = int(np.flatnonzero(ops.correlation == launch)[0])
        (bubble,) = np.flatnonzero(device.bubbles.op == first).tolist()
        assert calls.correlation[device.bubbles.launch[bubble]] == launch
        mine = device.pieces.rows(device.pieces.bubble == bubble)
        parts: dict[Part, int] = {}
        for part, ns in zip(mine.part.tolist(), (mine.end - mine.start).tolist(), strict=True):
            parts[Part(part)] = parts.get(Part(part), 0) + ns
        rows = mine.call[mine.part == Part.LAUNCH_CALL].tolist()
        found.append((bubble, parts, {calls.name[row] for row in rows}))
    return found


@pytest.mark.parametrize("name", PAIR)
def test_the_bubble_before_each_verify_graph_is_its_launch_call(name: str) -> None:
    found = verify_bubbles(name)
    assert len(found) == 10
    for _, parts, calls in found:
        assert calls == {"cudaGraphLaunch"}
        # The host came late by some 25 to 50 us, and the graph began before the call returned.
        assert set(parts) == {Part.HOST_GAP, Part.LAUNCH_CALL}
        assert parts[Part.LAUNCH_CALL] > 10 * parts[Part.HOST_GAP]


def test_how_much_of_it_a_step() -> None:
    (device,) = seen(NO_SYNC)[1].devices
    in_calls = [
        parts[Part.LAUNCH_CALL]
        for bubble, parts, _ in verify_bubbles(NO_SYNC)
        if device.steps.whole[device.bubbles.step[bubble]]
    ]
    assert len(in_calls) == 9
    assert round(sum(in_calls) / 9 / 1e6, 2) == 0.94


@pytest.mark.parametrize("name", PAIR)
def test_what_only_node_level_shows_never_leads(name: str) -> None:
    _, diagnosis = seen(name)
    assert diagnosis.level == "node"
    findings = diagnosis.findings
    ranked = [f.ranked for f in findings]
    assert ranked == sorted(ranked, reverse=True)
    assert findings[0].ranked
    prices = [f.exposed_idle_ns_per_step for f in findings if f.ranked]
    assert prices == sorted(prices, reverse=True)
    unranked = {(f.kind, f.call) for f in findings if not f.ranked}
    assert ("launch call", "cudaGraphLaunch") in unranked
    assert {kind for kind, _ in unranked} == {"launch call", "graph gap"}
    assert all(f.call != "cudaGraphLaunch" for f in findings if f.ranked)


@pytest.mark.parametrize("name", PAIR)
def test_the_report_marks_it(name: str) -> None:
    out = io.StringIO()
    terminal.render(seen(name)[1], {}, Console(file=out, width=200))
    findings = " ".join(out.getvalue().partition("Findings")[2].split())
    unnumbered = findings.partition(" · ")[2]
    assert "cudaGraphLaunch" not in findings.partition(" · ")[0]
    assert unnumbered.startswith("cudaGraphLaunch (graphs of up to 738 nodes)")
    assert "seen at node level only, not ranked" in unnumbered.partition(" · ")[0]


# The pair --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kernels", "dtoh", "calls"), [(SYNC, 9909, 30, 1491), (NO_SYNC, 9899, 20, 1359)]
)
def test_rows_as_the_index_counts_them(name: str, kernels: int, dtoh: int, calls: int) -> None:
    timeline, _ = seen(name)
    ops = timeline.device_ops
    assert ops.kind.to_list().count("kernel") == kernels
    assert sum(n.startswith("Memcpy DtoH") for n in ops.name.to_list()) == dtoh
    assert len(timeline.host_calls) == calls
    graphs = timeline.host_calls.name.where(lambda call: call == "cudaGraphLaunch")
    assert graphs.sum() == 30
    of_graphs = np.isin(ops.correlation, timeline.host_calls.correlation[graphs])
    assert (of_graphs & ops.kind.where(lambda kind: kind == "kernel")).sum() == 9360


def test_what_else_differs() -> None:
    (with_read, _), (without, _) = seen(SYNC), seen(NO_SYNC)

    def more(count: Any) -> int:
        return int(count(with_read) - count(without))

    assert more(lambda t: t.device_ops.kind.where(lambda k: k == "memcpy").sum()) == 30
    assert more(lambda t: t.device_ops.kind.where(lambda k: k == "kernel").sum()) == 10
    assert more(lambda t: t.device_ops.kind.where(lambda k: k == "memset").sum()) == 0
    assert more(lambda t: t.host_calls.name.where(lambda n: "Launch" in n).sum()) == 10
    assert more(lambda t: t.host_calls.name.where(lambda n: "Memcpy" in n).sum()) == 30
    assert more(lambda t: t.ranges.kind.where(lambda k: k == "op").sum()) == 480


@pytest.mark.parametrize("name", PAIR)
def test_the_profiler_file_gives_the_same_diagnosis(name: str) -> None:
    file = f"traces/sglang_ling3_h200_nextn_{name.replace('-', '_')}.json.gz"
    original = load(need(file))
    shipped, diagnosis = seen(name)
    assert original.tables() == shipped.tables()
    # What the file cannot say of itself was added to the one that ships.
    differs = {"unprofiled_step_ns"}
    here, there = told(diagnosis), told(diagnose(original))
    assert {k: v for k, v in here.items() if k not in differs} == {
        k: v for k, v in there.items() if k not in differs
    }
