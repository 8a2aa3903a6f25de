"""The table as text and as JSON: what is told, and where it is cut."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bubblescope.diagnose import diagnose
from bubblescope.doctor.tools import Copy
from bubblescope.errors import BubblescopeError
from bubblescope.kernels import Dram, DramRun, Kernels, Nsight, NsightRun, tabulate
from bubblescope.kernels.asked import DURATION, PEAK, RATE, Run
from bubblescope.report.kernels import render, to_json
from tests.synthetic import TraceBuilder
from tests.test_kernels_table import loop


def table(trace: TraceBuilder | None = None, by: str = "name") -> Kernels:
    timeline = (trace or loop()).timeline()
    return tabulate(timeline, diagnose(timeline), by=by)


def printed(found: Kernels, width: int = 100, top: int = 10) -> str:
    out = io.StringIO()
    render(found, Console(file=out, width=width), top=top)
    return out.getvalue()


def measured() -> Kernels:
    """The loop's table with figures of both tools beside its kernel a."""
    found = table()
    rows = tuple(
        replace(row, nsight=Nsight(2.0, 168, 99, 231), dram=Dram(12, 3.25e12, 67.6, 170))
        if row.name == "a"
        else row
        for row in found.rows
    )
    return replace(
        found,
        rows=rows,
        nsight=NsightRun("1.1.0", "13.4.1", 5, ("n::c",), 750),
        dram=DramRun("2025.3.1", "ncu 2025.3.1", 12, ()),
    )


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_headline_adds_up() -> None:
    text = words(printed(table()))
    # 18 operations, 2,910 ns and 2,610 ns in three steps of 10,000.
    assert "6 operations a step in the mean, 1.0 us in all, 0.1 us of that side by side" in text
    assert "busy 0.9 us (8.7 % of the step)" in text
    assert "durations the recording's own records, node level" in text


def test_rows_are_ordered_and_cut() -> None:
    lines = printed(table(), top=2).splitlines()
    assert [line.split()[0] for line in lines[-3:-1]] == ["b<4>", "a"]
    # 750 of 30,000 ns are in the other three rows.
    assert lines[-1].strip() == "and 3 more with 2.5 % of the step: --top, --json"
    assert lines[-2].split()[1:] == [
        "2.0",
        "0.2",
        "0.2",
        "0.1",
        "0.2",
        "0.3",
        "3.2",
        "36.8",
        "stream",
    ]


def test_both_tools_stand_beside() -> None:
    text = printed(measured(), width=120)
    (a,) = [line for line in text.splitlines() if line.split()[:1] == ["a"]]
    # 168 against a mean of 160.
    assert a.split()[:10] == ["a", "2.0", "0.2", "0.2", "0.1", "0.2", "0.2", "+5.0", "%", "3,250"]
    said = words(text)
    assert "nsight-python 1.1.0, CUPTI 13.4.1: 5 steps launched without graphs" in said
    assert "in all +5.0 % against the recording" in said
    assert "it did not see kernels of 0.8 us a step; it saw c which" in said
    assert "ncu 2025.3.1: 12 launches, one at a time" in said


def test_opaque_replays_are_a_doubt() -> None:
    trace = TraceBuilder()
    for k in range(5):
        t = 10_000 * k
        trace.step(k, at=t, dur=9_000)
        trace.whole_graph(at=t + 100, dur=50, start=t + 200, run=5_000, graph=3)
    text = words(printed(table(trace)))
    assert "! doubt 100.0 % of all durations are graph replays recorded whole" in text
    assert "graph 3, recorded whole" in text


def test_without_steps() -> None:
    trace = TraceBuilder()
    trace.launch("x", at=0, dur=10, start=100, run=50_000)
    text = words(printed(table(trace)))
    assert "1 operation in the window, 50 us in all: busy 50 us (100.0 % of the window)." in text
    assert "x 1 50.0 50.0 50.0 50.0 50 100.0 100.0 stream" in text


@pytest.mark.parametrize("width", [24, 40, 60, 79, 100, 200])
def test_no_line_is_wider_than_the_page(width: int) -> None:
    text = printed(measured(), width=width)
    assert max(map(len, text.splitlines())) <= max(width, 24)
    assert "b<4>" in text


def test_names_from_outside_do_nothing_to_a_terminal() -> None:
    trace = TraceBuilder()
    trace.launch("evil\x1b[31m\nname", at=0, dur=10, start=100, run=50)
    text = printed(table(trace))
    assert "\x1b" not in text
    assert "evil?[31m name" in text


def test_json_has_every_figure() -> None:
    told = json.loads(to_json(measured()))
    assert told["version"] == 1
    assert (told["by"], told["steps"], told["step_ns"], told["devices"]) == ("name", 3, 10_000, 1)
    assert (told["window_ns"], told["busy_ns"], told["durations_ns"]) == (30_000, 2_610, 2_910)
    assert told["overlapped_ns"] == 300
    assert told["nsight"] == {
        "version": "1.1.0",
        "cupti": "13.4.1",
        "steps": 5,
        "unmatched": ["n::c"],
        "unseen_ns_per_step": 750,
    }
    b, a = told["kernels"][:2]
    assert (b["name"], b["short"], b["family"]) == ("void n::b<4>(int)", "b<4>", "n::b")
    assert a == {
        "name": "a",
        "short": "a",
        "family": "a",
        "kind": "kernel",
        "names": 1,
        "where": "stream",
        "streams": [7],
        "calls": 6,
        "in_graphs": 0,
        "calls_per_step": 2.0,
        "total_ns": 960,
        "ns_per_step": 320,
        "share": 0.032,
        "share_of_busy": 0.3678,
        "mean_ns": 160,
        "median_ns": 155,
        "p90_ns": 230,
        "min_ns": 100,
        "max_ns": 230,
        "nsight": {"calls_per_step": 2.0, "mean_ns": 168, "min_ns": 99, "max_ns": 231},
        "dram": {
            "launches": 12,
            "bytes_per_second": 3.25e12,
            "percent_of_peak": 67.6,
            "median_ns": 170,
        },
    }
    assert sum(row["total_ns"] for row in told["kernels"]) == told["durations_ns"]


# ncu, played by a program -----------------------------------------------------------------------

PLAYED = f"""#!{sys.executable}
import sys
words = sys.argv[1:]
log = words[words.index("--log-file") + 1]
wanted = words[words.index("--kernel-name") + 1]
open(log, "w").write(open({{says!r}}).read())
open({{says!r}} + ".wanted", "w").write(wanted)
if {{answers}}:
    open(words[-1], "w").write("{{{{}}}}")
"""


def dram(tmp_path: Path, says: str, *, answers: bool, version: str = "2025.3.1") -> Kernels:
    from bubblescope.kernels import target

    text = tmp_path / "says"
    text.write_text(says)
    program = tmp_path / "ncu"
    program.write_text(PLAYED.format(says=str(text), answers=answers))
    program.chmod(0o755)
    timeline = loop().timeline()
    found = tabulate(timeline, diagnose(timeline), by="family")
    return target._with_dram(found, timeline, Run(), Copy(str(program), version), 40)


def csv(*rows: tuple[str, ...]) -> str:
    table = [("Kernel Name", RATE, PEAK, DURATION), ("", "Gbyte/s", "%", "us"), *rows]
    return "\n".join(",".join(f'"{cell}"' for cell in row) for row in table)


def test_ncu_is_asked_for_the_hot_functions_and_its_figures_joined(tmp_path: Path) -> None:
    rows = [("_ZN1n1bILi4EEEvi", "2,000.0", "50", "2"), ("_ZN1n1bILi8EEEvi", "1,000", "20", "2")]
    found = dram(tmp_path, "==PROF== x\n" + csv(*rows, ("x", "1", "1", "1")), answers=True)
    assert found.rows[0].dram == Dram(2, 1.5e12, 35.0, 2_000)
    assert found.dram is not None
    assert found.dram.unmatched == ("x",)
    assert (tmp_path / "says.wanted").read_text() == "regex:^(a|b|side)$"


def test_what_ncu_says_goes_before_what_the_child_says(tmp_path: Path) -> None:
    with pytest.raises(BubblescopeError, match="ncu: no way"):
        dram(tmp_path, "==ERROR== no way\n", answers=False)
    with pytest.raises(BubblescopeError, match="ended without an answer"):
        dram(tmp_path, "==PROF== nothing\n", answers=False)


def test_a_newer_ncu_is_used_through_nsight_python(tmp_path: Path) -> None:
    with pytest.raises(BubblescopeError, match=r"^nsight-python cannot be imported"):
        dram(tmp_path, "", answers=True, version="2026.2.1")


def test_an_answer_in_json_is_typed() -> None:
    told: dict[str, Any] = json.loads(to_json(table()))
    assert told["nsight"] is None
    assert told["dram"] is None
    assert told["health"] == []
