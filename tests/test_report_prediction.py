"""What `bubblescope predict` prints and writes, of predictions that are known."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from bubblescope.predict import Prediction, parse, predict
from bubblescope.report import prediction as report
from bubblescope.report.prediction_json import PredictionJson, to_json
from tests.machine import Instruction, Launch, recorded
from tests.synthetic import TraceBuilder
from tests.test_predict_truth import DEVICE_BOUND, READ_BOUND


def printed(prediction: Prediction, width: int = 100) -> str:
    out = io.StringIO()
    report.render(prediction, Console(file=out, width=width))
    return out.getvalue()


def flat(text: str) -> str:
    return " ".join(text.split())


WITHOUT = predict(recorded(READ_BOUND), [parse("read:cudaStreamSynchronize")])


def test_the_step_before_and_after_comes_first() -> None:
    text = flat(printed(WITHOUT))
    outcome = "the step takes 66 us instead of 100: 34 us (34.2 %) shorter."
    assert f"With read:cudaStreamSynchronize {outcome}" in text
    assert "Replayed unchanged it comes out as recorded; medians over 11 steps." in text


def test_where_the_time_went() -> None:
    table = printed(WITHOUT).partition("Where a step goes")[2].partition("Critical path")[0]
    rows = {
        line.split()[1]: line.split()[-3:]
        for line in table.splitlines()
        if " us" not in line and len(line.split()) > 3
    }
    # Kernels 62 us; 25 us of work, 4 of launch call and the rest gone; one boundary more.
    assert rows["busy"] == ["62", "62", "0"]
    assert rows["host"] == ["25", "0", "-25"]
    assert rows["device"] == ["2.6", "3.9", "+1.3"]


def test_the_path_and_the_slack() -> None:
    text = printed(WITHOUT)
    path = text.partition("Critical path")[2].partition("Slack")[0]
    assert re.search(r"device operation +gemm +60 +60", path)
    assert re.search(r"read return +cudaStreamSynchronize +4\.0 +0", path)
    slack = flat(text.partition("Slack")[2])
    assert "before host 57 us (alone it takes 44 a step), device 25 us (alone 75)." in slack
    assert "after host" in slack


def test_without_a_what_if_only_the_recording_is_told() -> None:
    text = printed(predict(recorded(READ_BOUND), []))
    assert "The step takes 100 us." in text
    assert "Where a step goes" not in text
    assert "before" not in text.partition("Critical path")[2].partition("Slack")[0]


def test_what_saves_nothing_and_what_costs() -> None:
    same = predict(recorded(READ_BOUND), [parse("speed-up:gemm=1")])
    assert "100 us instead of 100: no shorter." in flat(printed(same))
    slower = predict(recorded(DEVICE_BOUND), [parse("speed-up:norm=1/2")])
    assert "9.0 us (5.2 %) longer." in flat(printed(slower))


def test_what_is_assumed_and_concluded_is_said() -> None:
    changed = replace(
        WITHOUT,
        assumed=("a graph launch call takes 10 us",),
        inferred=replace(WITHOUT.inferred, reads=1, stream_waits=3, fixed=2),
    )
    text = flat(printed(changed))
    assert "Assumed: a graph launch call takes 10 us." in text
    assert "concluded from times: 3 waits for another stream, 1 wait of a read." in text
    assert "What 2 blocking reads waited for is not known: their length is kept." in text


def withheld() -> Prediction:
    """Beside each kernel runs one, half as long, whose launch was not recorded."""
    trace = TraceBuilder()
    for n in range(12):
        at = n * 100_000
        trace.range("annotation", "step", at, 90_000)
        trace.launch("gemm", at, 4_000, at + 6_500, 20_000)
        trace.on(stream=9).orphan("lost", at + 9_000, 10_000)
    return predict(trace.timeline(), [parse("speed-up:gemm=2")])


def test_a_withheld_prediction_says_why_and_nothing_else() -> None:
    made = withheld()
    assert made.predicted_ns is None
    text = flat(printed(made))
    assert "Not predicted: operations whose launch was not recorded do 33.3% of the work" in text
    assert "The step takes 100 us as recorded." in text
    assert "Critical path" not in text
    told = msgspec.json.decode(to_json(made), type=PredictionJson)
    assert told.withheld == made.withheld != ""
    assert (told.predicted_ns, told.saving_ns, told.after) == (None, None, None)


@pytest.mark.parametrize("width", [24, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_page(width: int) -> None:
    nasty: list[Instruction] = [Launch("ge\x1b[31mmm\n" + "x" * 300, 30_000), *READ_BOUND[1:]]
    text = printed(predict(recorded(nasty), [parse("speed-up:x*=2")]), width)
    assert "\x1b" not in text
    assert max(cell_len(line) for line in text.splitlines()) <= max(width, 24)


def test_json_says_all_of_it() -> None:
    told = msgspec.json.decode(to_json(WITHOUT), type=PredictionJson)
    assert told.version == 1
    assert told.what_ifs == ["read:cudaStreamSynchronize"]
    assert (told.step_ns, told.replayed_ns, told.predicted_ns) == (100_100, 100_100, 65_900)
    assert told.saving_ns == 34_200
    assert {(s.measured_ns, s.replayed_ns, s.predicted_ns) for s in told.steps} == {
        (100_100, 100_100, 65_900)
    }
    assert [s.number for s in told.steps] == WITHOUT.number.tolist()
    assert told.before.busy_ns == 62_000
    assert told.after is not None
    assert told.after.parts_ns["device gap"] == 3 * 1_300
    assert told.before.slack is not None
    assert told.before.slack.host_ns == 100_100 - told.before.slack.host_alone_ns
    assert told.before.critical_path[0].name == "gemm"


def test_json_keys_are_documented() -> None:
    text = (Path(__file__).parents[1] / "docs" / "json.md").read_text(encoding="utf-8")
    section = text.partition("# A prediction as JSON")[2]
    documented = set(re.findall(r"`([a-z_ ]+)`", section))
    definitions = msgspec.json.schema(PredictionJson)["$defs"].values()
    keys = {key for definition in definitions for key in definition["properties"]}
    assert keys <= documented, keys - documented


def test_steps_are_medians() -> None:
    assert WITHOUT.changed is not None
    assert WITHOUT.predicted_ns == int(np.median(WITHOUT.changed.steps_ns))
