"""What the reporters make of an Ablation with known figures."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from bubblescope.ablate import jobs
from bubblescope.ablate.ablation import Ablation, Change, Row, Verdict
from bubblescope.ablate.plan import Plan, rungs
from bubblescope.ablate.samples import Window
from bubblescope.ablate.statistics import Interval
from bubblescope.report.ablation import render
from bubblescope.report.ablation_files import to_csv, to_json, to_markdown

BASE = Row(
    label="none",
    passes=(),
    starts=3,
    rounds=15,
    throttled=0,
    step_ns=20_355_267,
    interval_ns=(20_340_000, 20_371_499),
    p99_ns=21_000_000,
    tokens_per_step=3.25,
    tpot_ns=6_263_159,
    tpot_interval_ns=(6_258_462, 6_268_154),
    tokens_per_s=159.664,
    change=None,
    predicted_ns=None,
    window=Window(0, 20_760_000, 871_712, 2.0, 8.0, "CUPTI, graph level"),
    floor_share=0.0982,
    gate="",
    checked=(),
)
CHANGE = Change("none", -0.0214, Interval(-0.0231, -0.0196), 0.0012, Verdict.FASTER, -0.0423, "")
SYNC = replace(
    BASE,
    label="+ seq-len-sync",
    passes=("seq-len-sync",),
    step_ns=19_919_652,
    interval_ns=(19_900_000, 19_940_000),
    throttled=2,
    change=CHANGE,
    predicted_ns=19_494_000,
    window=Window(1, 19_910_000, None, 1.0, 5.1, "CUPTI, graph level"),
    gate="passed",
    checked=(jobs.Checked(1, "tokens", "passed", "256 equal"),),
)
WRONG = replace(
    SYNC,
    label="+ mine:Wrong",
    passes=("seq-len-sync", "mine:Wrong"),
    change=replace(
        CHANGE,
        against="+ seq-len-sync",
        change=0.25,
        interval=None,
        verdict=Verdict.FAILED,
        predicted=None,
        why_not="mine:Wrong: declares no model",
    ),
    predicted_ns=None,
    gate="failed",
    checked=(jobs.Checked(2, "tokens", "failed", "first differs at position 40"),),
)
PLAN = Plan("cumulative", rungs([("seq-len-sync",), ("mine:Wrong",)], "cumulative"), ((0, 1, 2),))
ABLATION = Ablation(
    target="ling",
    about={"model": "Ling-3.0-flash", "acceptance": "simulated acceptance, 3.25 tokens"},
    versions={"torch": "2.13.0"},
    plan=PLAN,
    parts=1,
    rows=(BASE, SYNC, WRONG),
    total=None,
    total_label="",
    compared="step",
    floor_ns=1_999_000,
    notes=("rows with a failed gate are in no total",),
)


def text(ablation: Ablation, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True, legacy_windows=False)
    render(ablation, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_whole() -> None:
    assert text(ABLATION) == (
        "ablation of target ling\n"
        "model       Ling-3.0-flash\n"
        "acceptance  simulated acceptance, 3.25 tokens\n"
        "plan        3 rows, 3 starts a side, 5 rounds of 200 steps in each (20 before them not "
        "timed); rows\n"
        "            alternate round by round within a start\n"
        "floor       1,999 us a step\n"
        "note        rows with a failed gate are in no total\n"
        "\n"
        "Step time  us, median of 15 rounds and its 95 % interval; p99 of single steps\n"
        "  pass              step              95 %     p99   TPOT            95 %  tok/s  "
        "tokens a step\n"
        "  none            20,355  20,340 to 20,371  21,000  6,263  6,258 to 6,268    160"
        "           3.25\n"
        "  + seq-len-sync  19,920  19,900 to 19,940  21,000  6,263  6,258 to 6,268    160"
        "           3.25\n"
        "  + mine:Wrong    19,920  19,900 to 19,940  21,000  6,263  6,258 to 6,268    160"
        "           3.25\n"
        "\n"
        "What changes  step in %, each added to those above, against the row above; idle in us a "
        "step\n"
        "  pass            change          95 %          predicted  idle  reads  launches  floor"
        "  gate\n"
        "  none                                                      872    2.0       8.0   10 %\n"
        "  + seq-len-sync    -2.1  -2.3 to -2.0  faster       -4.2     -    1.0       5.1   10 %"
        "  passed\n"
        "  + mine:Wrong     +25.0             -  failed          -     -    1.0       5.1   10 %"
        "  failed\n"
        "\n"
        "  gate tokens failed, + mine:Wrong: first differs at position 40\n"
        "  nothing predicted, + mine:Wrong: mine:Wrong: declares no model\n"
        "  noise: the baseline against itself shows up to 0.1 %\n"
    )


def test_without_a_floor_there_is_no_column_of_it() -> None:
    rows = tuple(replace(r, floor_share=None) for r in ABLATION.rows)
    said = text(replace(ABLATION, rows=rows, floor_ns=None))
    assert "floor" not in said


def test_the_total_has_a_row() -> None:
    said = text(replace(ABLATION, total=CHANGE, total_label="all, against none"))
    (line,) = [x for x in said.splitlines() if "all, against none" in x]
    assert line.split() == [
        "all,",
        "against",
        "none",
        "-2.1",
        "-2.3",
        "to",
        "-2.0",
        "faster",
        "-4.2",
    ]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
def test_any_width(width: int) -> None:
    said = text(ABLATION, width)
    assert max(map(len, said.splitlines())) <= width
    assert "gate tokens failed" in " ".join(said.split())


def test_json_is_exact() -> None:
    told = json.loads(to_json(ABLATION))
    assert told["version"] == 1
    assert told["plan"] == {
        "ladder": "cumulative",
        "starts": 3,
        "rounds": 5,
        "steps": 200,
        "warm_up": 20,
        "processes": 1,
    }
    assert told["floor_ns"] == 1_999_000
    sync = told["rows"][1]
    assert sync["step_ns"] == 19_919_652
    assert sync["interval_ns"] == [19_900_000, 19_940_000]
    assert (sync["throttled"], sync["idle_ns"], sync["launches"]) == (2, None, 5.1)
    assert sync["change"] == {
        "against": "none",
        "change": -0.0214,
        "interval": [-0.0231, -0.0196],
        "noise": 0.0012,
        "verdict": "faster",
        "predicted": -0.0423,
        "why_not": "",
    }
    assert sync["gates"] == [{"gate": "tokens", "verdict": "passed", "detail": "256 equal"}]
    assert told["rows"][0]["change"] is None
    assert told["total"] is None


def test_csv_has_a_line_a_row_and_nothing_where_nothing_is_known() -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(ABLATION))))
    assert [line["label"] for line in lines] == ["none", "+ seq-len-sync", "+ mine:Wrong"]
    assert lines[1]["step_low_ns"] == "19900000"
    assert lines[1]["idle_ns"] == ""
    assert lines[2]["passes"] == "seq-len-sync mine:Wrong"
    assert (lines[2]["change_low"], lines[2]["verdict"]) == ("", "failed")
    assert lines[0]["change"] == ""


def test_markdown_is_a_table_that_no_name_breaks() -> None:
    wild = replace(SYNC, label="+ a|b\nc")
    said = to_markdown(replace(ABLATION, rows=(BASE, wild), total=CHANGE, total_label="all"))
    rows = [line for line in said.splitlines() if line.startswith("|")]
    assert len(rows) == 5  # heads, their rule, two rows and the total
    assert {row.replace("\\|", "").count("|") for row in rows} == {17}
    assert "+ a\\|b c" in rows[3]
    assert "- rows with a failed gate are in no total" in said


def test_names_from_outside_cannot_write_to_the_terminal() -> None:
    wild = replace(
        SYNC, label="+ \x1b[31mred", checked=(jobs.Checked(1, "x", "failed", "a\nb\x07"),)
    )
    said = text(replace(ABLATION, rows=(BASE, wild)))
    assert said.replace("\n", "").isprintable()
