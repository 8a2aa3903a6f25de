"""`bubblescope predict` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import ENV, SYNC, Result, decode_loop, refusal

READ = "read:cudaStreamSynchronize"


def predict(*arguments: str | Path) -> Result:
    words = [sys.executable, "-m", "bubblescope", "predict", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, timeout=60, check=False, env=ENV)


def told(*arguments: str | Path) -> dict[str, Any]:
    done = predict(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_text() -> None:
    done = predict(SYNC, "--without", READ)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert "the step takes 7,826 us instead of 8,690: 864 us (9.9 %) shorter." in " ".join(
        text.split()
    )
    assert max(map(len, text.splitlines())) <= 100


def test_json() -> None:
    made = told(SYNC, "--without", READ)
    assert made["what_ifs"] == [READ]
    assert made["step_ns"] == made["replayed_ns"] == 8_690_329
    # Within 6 % of the same engine's step without the read.
    assert abs(made["predicted_ns"] - 7_504_152) < 0.06 * 7_504_152
    assert made["saving_ns"] == made["replayed_ns"] - made["predicted_ns"]
    assert len(made["steps"]) == 9


def test_a_loop_of_which_the_answer_is_known(decode: Path) -> None:
    """Each step waits 65 us for its two kernels of 30; without that the device never stops.

    The kernels are recorded end to end, and the host needs the other 35 us of the 100.
    """
    made = told(decode, "--without", "read:serve.py:12")
    assert made["step_ns"] == 100_000
    assert made["predicted_ns"] == 60_000


def test_all_that_is_asked_for_holds_together() -> None:
    alone = told(SYNC, "--without", READ)["predicted_ns"]
    more = ["--capture", "draft", "--pdl", "--speed-up", "fused_moe*=2"]
    both = told(SYNC, "--without", READ, *more)
    assert both["predicted_ns"] < alone
    assert both["what_ifs"] == [READ, "capture:draft", "speed-up:fused_moe*=2", "pdl:*"]


def test_a_pass() -> None:
    made = told(SYNC, "--pass", "seq-len-sync")
    assert made["what_ifs"] == ["pass:seq-len-sync"]
    assert made["saving_ns"] == told(SYNC, "--without", READ)["saving_ns"]


def test_nothing_asked_shows_what_decides() -> None:
    made = told(SYNC, "--window", "2:6")
    assert made["what_ifs"] == []
    assert [s["number"] for s in made["steps"]] == [2, 3, 4, 5]
    assert made["saving_ns"] == 0
    assert made["before"]["critical_path"] == made["after"]["critical_path"]


def test_withheld_is_exit_code_1(tmp_path: Path) -> None:
    events = decode_loop()
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"traceEvents": [e for e in events if e["ts"] < 90]}))
    done = predict(path)
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"Not predicted: no whole step" in done.stdout
    done = predict(path, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["withheld"].startswith("no whole step")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--without", "read:nowhere.py:1"], "no such blocking read; the recording has cudaStream"),
        (["--without", "nothing"], "is no what-if; there are read:..., wait:..."),
        (["--speed-up", "softmax=2"], "speed-up:softmax=2: no such operation; the recording has"),
        (["--speed-up", "gemm"], "write NAME=K"),
        (["--merge", "softmax"], "no such run of launches"),
        (["--capture", "softmax"], "no such range; the recording has draft"),
        (["--pdl", "gemm=soon"], "'soon' is not a number"),
        (["--pass", "nothing"], "no pass 'nothing'; there are"),
        (["--window", "70:80"], "no such steps"),
    ],
)
def test_what_cannot_be_asked_is_one_line(options: list[str], says: str) -> None:
    assert says in refusal(predict(SYNC, *options))


def test_no_such_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(predict(tmp_path / "none.json"))


def test_findings_say_what_they_would_save() -> None:
    words = [sys.executable, "-m", "bubblescope", "diagnose", str(SYNC)]
    done = subprocess.run([*words, "--json"], capture_output=True, check=True, env=ENV)
    findings = json.loads(done.stdout)["findings"]
    ranked = [f["predicted_saving_ns_per_step"] for f in findings if f["ranked"]]
    assert ranked == sorted(ranked, reverse=True)
    (read,) = [f for f in findings if f["kind"] == "blocking read"]
    assert read["predicted_saving_ns_per_step"] == told(SYNC, "--without", READ)["saving_ns"]
    done = subprocess.run(words, capture_output=True, check=True, env=ENV)
    assert "without it the step is 864 us shorter" in " ".join(done.stdout.decode().split())
