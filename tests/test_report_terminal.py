# ruff: noqa: E501 - expected rows stand as they are printed, 100 columns wide
from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from bubblescope.diagnose.model import (
    Filler,
    Finding,
    Part,
    ReadSite,
    Segment,
)
from bubblescope.report.terminal import render
from bubblescope.report.where import strip
from tests.test_report_examples import (
    COPY,
    FINDINGS,
    HOSTILE,
    READ,
    decode,
    device_of,
    diagnosis_of,
    hostile,
    section,
    steps_of,
    text,
    window_only,
)


def test_where_a_step_goes_has_exact_rows() -> None:
    rows = section(text(decode()), "Where a step goes")
    assert rows == [
        "Where a step goes  medians over 3 steps",
        "                     us      %",
        "  busy            5,820   67.1  ██████████████████▊  of it 1,533 us of kernels overlapping",
        "  host gap        1,257   14.5  ████                 host has not begun the next launch",
        "  launch call     1,199   13.8  ███▉                 941 us in cudaGraphLaunch: node level only",
        "  graph gap         297    3.4  █                    inside one graph replay",
        "  device gap         51    0.6  ▏                    between operations already queued",
        "  launch latency     50    0.6  ▏                    launch returned, work not begun",
        "  stream wait      <0.1   <0.1  ▏                    queued behind another stream's event",
        "  step            8,674  100.0",
        "  All 94,846 us of the window, 12,345 device operations: busy 23,380 us (24.7 %), read tail 60,000",
        "  (63.3 %), host gap 5,078 (5.4 %), launch call 4,796 (5.1 %), graph gap 1,188 (1.3 %), device gap",
        "  206 (0.2 %), launch latency 198 (0.2 %), stream wait 0.2 (<0.1 %).",
    ]


def test_parts_of_nothing_are_left_out_but_the_unknown_of_the_window_shows() -> None:
    steps = steps_of([(90, 0, {Part.GRAPH_GAP: 10}), (90, 0, {Part.UNKNOWN: 3})], cut=(1,))
    rows = section(text(diagnosis_of(device_of(steps))), "Where a step goes")
    assert [row.split()[0] for row in rows[2:6]] == ["busy", "graph", "unknown", "step"]
    assert rows[4].split()[:3] == ["unknown", "0", "0"]
    assert "<0.1 us in the window, outside these steps" in rows[4]
    assert "host gap" not in "\n".join(rows)


def test_busy_is_an_upper_bound_where_graphs_were_recorded_whole() -> None:
    steps = steps_of([(9_000, 0, {Part.HOST_GAP: 1_000})])
    said = text(diagnosis_of(device_of(steps, opaque_ns=4_500)), width=120)
    assert "an upper bound: 50.0 % of it graph replays recorded whole" in said


def test_without_steps_everything_is_a_total() -> None:
    said = text(window_only(700_000, {Part.HOST_GAP: 300_000}))
    assert "steps     none found; --marker NAME" in said
    assert "Idle 300 us (30.0 % of the window), mainly host gap." in said
    rows = section(said, "Where the time goes")
    assert rows[0] == "Where the time goes  totals over the window"
    assert rows[2].startswith("  busy        700   70.0  ███")
    assert rows[3].startswith("  host gap    300   30.0  ███")
    assert rows[4] == "  window    1,000  100.0"
    assert len(rows) == 5
    assert "a step" not in said


def test_reads_without_steps_are_totals() -> None:
    none = {f: None for f in READ.__slots__ if f.endswith("_per_step")}
    read = replace(READ, **none)  # type: ignore[arg-type]
    said = text(window_only(7, {Part.READ_TAIL: 3}, reads=(read,)), width=120)
    assert section(said, "Blocking reads") == [
        "Blocking reads  us in all; what they expose is part of the idle above",
        " " * 64 + "calls  blocked  exposes  idle after",
        "  cudaStreamSynchronize  managers/overlap_utils.py:639 resolve"
        + " " * 6
        + "4    3,400    3,316       9,792",
    ]


def test_reads_have_exact_rows_and_the_number_of_their_finding() -> None:
    assert section(text(decode()), "Blocking reads") == [
        "Blocking reads  us a step, medians; what they expose is part of the idle above",
        "                         calls  blocked  exposes  (in all)  idle after",
        "  cudaStreamSynchronize    1.0      850      829     3,316       2,448  #1",
        "    managers/overlap_utils.py:639 resolve",
        "  cudaEventSynchronize     1.0      6.0        0         0           0",
        "    copy_done",
    ]


def test_a_place_stands_beside_the_read_where_there_is_room() -> None:
    assert (
        "  cudaStreamSynchronize  managers/overlap_utils.py:639 resolve    1.0      850      829"
        in text(decode(), width=120)
    )


def test_reads_are_totals_where_no_step_counts() -> None:
    steps = steps_of([(7_000, 0, {Part.READ_TAIL: 3_000})], cut=(0,))
    said = text(diagnosis_of(device_of(steps), reads=(READ,), findings=FINDINGS[:1]))
    assert "Blocking reads  us in all" in said
    assert "holds the host: 3,316 us (9.5 %)" in said
    assert "a step" not in said.replace("each step", "")


def test_the_ranges_around_a_read_lose_whole_names_first() -> None:
    within = ("ProfilerStep#", "decode", "a" * 40, "b" * 40, "aten::item", "aten::copy_")
    read = replace(READ, site=None, within=within)
    said = text(replace(decode(), reads=(read,)), width=80)
    assert f"    decode > {'a' * 40} > … > aten::item\n" in said


def test_the_marker_is_not_repeated_at_each_read() -> None:
    read = replace(READ, site=None)
    rows = section(text(replace(decode(), reads=(read,))), "Blocking reads")
    assert "aten::item" in rows[2]
    assert "run_batch" not in rows[2]


def test_top_limits_rows_and_says_how_many_are_left() -> None:
    base = decode()
    many = replace(
        base,
        reads=(READ, *[COPY] * 4),
        fillers=(base.fillers[0], *[replace(base.fillers[1], ns=692_666)] * 3),
        findings=FINDINGS * 2,
        health=base.health * 3,
    )
    said = text(many, top=1)
    assert section(said, "Blocking reads")[-1] == "  … and 4 more"
    assert section(said, "What the host did")[-1] == "  … and 3 more, 40.9 % together"
    assert section(said, "Findings")[-1] == "  … and 4 more"
    assert "and 2 more notes in --json" in said


def test_no_reads_is_said() -> None:
    assert "Blocking reads  none in this recording" in text(window_only(7, {Part.HOST_GAP: 3}))


def test_a_title_that_names_the_file_is_not_followed_by_it() -> None:
    named = replace(FINDINGS[0], title=f"{READ.name} at {READ.site.file}:639 holds the host")  # type: ignore[union-attr]
    said = text(replace(decode(), findings=(named,), reads=()))
    assert said.count("overlap_utils.py") == 1


def test_host_gaps_have_exact_rows() -> None:
    assert section(text(decode()), "What the host did") == [
        "What the host did in its gaps  us a step, medians",
        "                                 times   us  (in all)  % of host gap",
        "  framework op      aten::copy_     84  750     3,000           59.1",
        "  nothing recorded                  12  507     2,078           40.9",
    ]


def test_findings_are_numbered_and_joined_to_passes() -> None:
    said = section(text(decode(), {0: ["seq-len-sync"], 2: ["a", "b"]}), "Findings")
    assert said == [
        "Findings  largest first",
        "  1  A read-back each step holds the host: 829 us a step (9.5 %)",
        "     The host waits for verify to finish before it can prepare the next draft. At",
        "     managers/overlap_utils.py:639 resolve.",
        "     pass: seq-len-sync",
        "  2  The host prepares work while the device is dry: 1,257 us a step (14.5 %)",
        "     no pass addresses this yet",
        "  ·  cudaGraphLaunch: 941 us a step (10.8 %); seen at node level only, not ranked",
        "     passes: a, b",
    ]


def test_small_findings_take_one_line_or_none() -> None:
    small = replace(FINDINGS[1], share=0.005, exposed_idle_ns_per_step=43_000, why="Long advice.")
    rare = replace(small, exposed_idle_ns_per_step=0, exposed_idle_ns=60_000_000)
    inner = replace(FINDINGS[2], share=0.001)
    found = (FINDINGS[0], small, rare, small, small, inner)
    said = section(text(replace(decode(), findings=found), {2: ["glue-graph"]}), "Findings")
    assert said[5:] == [
        "  2  The host prepares work while the device is dry: 43 us a step (0.5 %)",
        "  3  The host prepares work while the device is dry: 60,000 us in all",
        "     pass: glue-graph",
        "  … and 3 more, each under 1 %",
    ]


def test_the_same_advice_is_given_once() -> None:
    twice = (FINDINGS[0], replace(FINDINGS[1], why=FINDINGS[0].why))
    said = section(text(replace(decode(), findings=twice)), "Findings")
    assert "     As under 1." in said


def test_a_price_that_the_title_says_is_not_said_twice() -> None:
    finding = replace(FINDINGS[0], title="It costs 829 us a step", site=None)
    said = text(replace(decode(), findings=(finding,)))
    assert "  1  It costs 829 us a step\n" in said


def test_one_step_is_drawn_to_scale_in_letters_without_colour() -> None:
    drawn = section(text(decode()), "One step")
    assert drawn[0] == "One step  8,674 us, to scale"
    assert drawn[1] == "  " + "h" * 14 + "c" * 13 + "█" * 68 + "g"
    assert drawn[2] == "  █ busy   h host gap   c launch call   g graph gap"


def test_a_step_shows_small_gaps_in_proportion() -> None:
    # 100 gaps, each a quarter of the time between them, each a tenth of a cell.
    pieces = []
    for n in range(100):
        pieces += [
            Segment("busy", 50 * n, 50 * n + 40),
            Segment("graph gap", 50 * n + 40, 50 * n + 50),
        ]
    shown = strip(pieces, 50)
    assert len(shown) == 50
    assert shown.count("graph gap") == 10


def test_a_step_shows_only_what_is_there() -> None:
    pieces = [Segment("busy", 7, 10), Segment("host gap", 10, 11), Segment("busy", 11, 107)]
    assert strip(pieces, 10) == ["busy"] * 10
    assert strip([Segment("read tail", 5, 5)], 3) == ["unknown"] * 3


@pytest.mark.parametrize("width", [100, 80, 60, 40, 24, 10, 1])
def test_no_line_is_wider_than_the_page(width: int) -> None:
    for diagnosis in (decode(), hostile(), window_only(0, {}), diagnosis_of()):
        for line in text(diagnosis, width=width).splitlines():
            assert cell_len(line) <= max(width, 24)


def test_hostile_names_are_printed_harmlessly() -> None:
    colour: dict[str, Any] = {"force_terminal": True, "color_system": "truecolor"}
    plain: dict[str, Any] = {}
    for options in (plain, colour):
        said = text(hostile(), {0: [HOSTILE]}, **options)
        assert "[bold]x[/] [/nope] ?[31m? a b c ?gnp?? ??2J ? 名前 é" in said
        for bad in "\x07\t\r\u202e\u200f\u2066\x00\x9b\ud800":
            assert bad not in said
        assert "\x1b[31m" not in said


def test_python_frames_keep_the_end_of_their_path() -> None:
    frame = Filler(
        "Python frame", "/usr/lib/python3/vllm/worker/model.py(12): run", "", 1, 5_078_000, 5
    )
    said = text(replace(decode(), fillers=(frame,)))
    assert "  Python frame  worker/model.py(12): run  " in said


def test_long_names_are_shortened_in_the_middle() -> None:
    name = "void at::native::" + "x" * 5_000 + "<float>"
    said = text(replace(decode(), fillers=(Filler("other CUDA call", name, "", 1, 5, 5),)))
    row = section(said, "What the host did")[2]
    assert "void at::native::xx" in row
    assert "…" in row
    assert "<float>" in row


def test_colour_only_on_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\x1b[" not in text(decode())
    on = text(decode(), force_terminal=True, color_system="truecolor")
    assert "\x1b[38;2;230;159;0m" in on  # the orange of host gaps, as a bar and in the step
    assert "hhhh" not in on
    monkeypatch.setenv("NO_COLOR", "1")
    off = text(decode(), force_terminal=True, color_system="truecolor")
    assert "\x1b[38" not in off
    assert "hhhh" in off


def test_ascii_where_the_encoding_knows_no_more() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    render(hostile(), {}, Console(file=out, width=80), top=1)
    render(decode(), {}, Console(file=out, width=80), top=1)
    out.flush()
    said = raw.getvalue().decode("ascii")
    assert "#####" in said
    assert "... and 1 more" in said


def test_latin_1_output_does_not_fail() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="latin-1")
    render(hostile(), {}, Console(file=out, width=80))
    out.flush()
    assert "?? é" in raw.getvalue().decode("latin-1")


def test_an_empty_diagnosis_is_told_without_failing() -> None:
    said = text(diagnosis_of())
    assert "The window has no length" in said
    assert "Findings  none" in said


def test_findings_without_a_share_or_steps() -> None:
    finding = Finding("host gap", "Host late", "", 7_000_000, None, float("nan"), True)
    said = text(window_only(7, {Part.HOST_GAP: 3}, findings=(finding,)))
    assert "  1  Host late: 7,000 us\n" in said


def test_rare_calls_do_not_read_as_none() -> None:
    read: ReadSite = replace(READ, calls_per_step=0.01)
    assert " <0.1 " in "\n".join(section(text(replace(decode(), reads=(read,))), "Blocking reads"))


def test_numpy_figures_print_like_any() -> None:
    read = replace(READ, blocked_ns_per_step=np.int64(850_400))  # type: ignore[arg-type]
    assert text(replace(decode(), reads=(read, COPY))) == text(decode())
