"""`bubblescope check` as CI runs it, on the recordings that ship."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.program import ENV, SYNC, TRACES, decode_loop, refusal

FIXED = TRACES / "ling3-loop-h200-seq-len-sync.bscope"
LOOP = TRACES / "ling3-loop-h200.bscope"
STEPS = ("--window", "200:210")


def run(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "bubblescope", "check", *map(str, words)]
    return subprocess.run(command, capture_output=True, timeout=90, check=False, env=ENV, cwd=cwd)


def test_within_its_budget():
    budget = ("--max-reads", "1", "--max-idle", "1%", "--max-step", "20ms", "--max-launches", "4")
    done = run(FIXED, *STEPS, *budget)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [
        f"{FIXED}: within all 4 limits",
        "  ok      blocking reads a step: 1, at most 1",
        "  ok      idle: 0.1 %, at most 1.0 %; idle inside graphs is not in it: replays were "
        "recorded whole",
        "  ok      step: 19.9 ms, at most 20.0 ms",
        "  ok      launches a step: 4, at most 4",
    ]


def test_over_its_budget():
    done = run(LOOP, *STEPS, "--max-reads", "1", "--max-idle", "300us")
    assert (done.returncode, done.stderr) == (1, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[0] == f"{LOOP}: 2 of 2 limits exceeded"
    assert lines[1] == "  FAILED  blocking reads a step: 2, at most 1"
    # Where it was when it was recorded, in full.
    at = " " * 10 + "/work/main/bubblescope/targets/ling/scheduler.py"
    assert lines[2] == f"{at}:123 in Scheduler._read_length"
    assert lines[3] == (
        " " * 12 + "cudaStreamSynchronize: 1.0 calls a step, blocked 16.8 ms a step, "
        "idle 855 us a step"
    )
    assert lines[4] == f"{at}:152 in Scheduler._take_results"
    assert "  FAILED  idle a step: 872 us, at most 300 us; idle inside graphs is not in it" in (
        done.stdout.decode()
    )


def test_json():
    done = run(LOOP, *STEPS, "--max-reads", "1", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["passed"], told["source"]) == (False, str(LOOP))
    (line,) = told["lines"]
    assert (line["measured"], line["limit"], line["unit"]) == (2, 1, "count")
    assert line["where"][0]["site"]["line"] == 123


def test_against_a_file_that_was_better():
    done = run(LOOP, *STEPS, "--against", FIXED, "--tolerance", "5%")
    assert done.returncode == 1
    text = done.stdout.decode()
    assert "  ok      step against ling3-loop-h200-seq-len-sync: 20.8 ms, at most 20.9 ms" in text
    assert "  FAILED  idle a step against ling3-loop-h200-seq-len-sync: 872 us, at most 3" in text
    assert "  FAILED  blocking reads a step against ling3-loop-h200-seq-len-sync: 2," in text
    assert run(LOOP, *STEPS, "--against", LOOP, "--tolerance", "0").returncode == 0
    assert run(FIXED, *STEPS, "--against", LOOP, "--tolerance", "0").returncode == 0


def test_a_named_baseline(tmp_path: Path):
    kept = run(LOOP, *STEPS, "--save-baseline", "main", cwd=tmp_path)
    assert (kept.returncode, kept.stdout) == (0, b"")
    assert kept.stderr == b"baseline saved as .bubblescope/baselines/main.bscope\n"
    # The baseline's steps are those that it was saved by, whatever is looked at now.
    done = run(LOOP, "--window", "203:207", "--against", "main", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    again = run(LOOP, *STEPS, "--save-baseline", "main", cwd=tmp_path)
    assert refusal(again).endswith("main.bscope: exists already; --force replaces it")
    forced = run(LOOP, *STEPS, "--save-baseline", "main", "--force", cwd=tmp_path)
    assert forced.returncode == 0


def test_what_exceeds_a_limit_is_no_baseline(tmp_path: Path):
    done = run(LOOP, *STEPS, "--max-reads", "0", "--save-baseline", "main", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == b"bubblescope: not kept as a baseline: it exceeds a limit\n"
    assert list(tmp_path.iterdir()) == []


def test_a_target_is_recorded_first(tmp_path: Path):
    pytest.importorskip("torch", reason="the embedded loop needs torch")
    words = ("--target", "ling", "--device", "cpu", "--step", "20", "--steps", "6")
    done = run(*words, "--max-reads", "1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, b"")
    text = done.stdout.decode()
    assert text.startswith("ling: 1 of 1 limit exceeded\n")
    assert "            self._device.synchronize()\n" in text
    fixed = run(*words, "--passes", "seq-len-sync", "--max-reads", "1", cwd=tmp_path)
    assert fixed.returncode == 0, fixed.stdout


def test_a_program_that_records_nothing_is_not_checked(tmp_path: Path):
    done = run("--max-reads", "0", "--", sys.executable, "-c", "print('ran')", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"ran\n")
    assert done.stderr.decode().splitlines()[-1].startswith("bubblescope: nothing was checked: ")


def test_a_program_that_fails_is_not_checked(tmp_path: Path):
    done = run("--max-reads", "0", "--", sys.executable, "-c", "raise SystemExit(3)", cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr.decode().splitlines()[-1]
    assert last == "bubblescope: nothing was checked: the program ended with exit code 3"


NOTHING = (
    "nothing to check; give a budget: --max-reads 0, --max-reads-in-all 0, --max-idle 5% or 300us, "
    "--max-step 9ms, --max-launches 50 or --against NAME"
)
SOURCES = "check a file, a target (--target ling) or a program (-- python serve.py): give "


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((SYNC,), NOTHING),
        (("--max-reads", "0"), f"{SOURCES}one of them"),
        ((SYNC, "--target", "ling", "--max-reads", "0"), f"{SOURCES}only one of them"),
        ((SYNC, "--max-reads", "0", "--", "true"), f"{SOURCES}only one of them"),
        ((SYNC, "--max-idle", "5"), "'5' is not a time; write it with its unit, as in 300us"),
        ((SYNC, "--max-reads", "-1"), "'-1' is not a number of 0 or more; write it as in 1"),
        (
            (SYNC, "--max-reads", "0", "--step", "3"),
            "--step is for a target or a program; leave it out",
        ),
        ((SYNC, "--max-reads", "0", "--device", "cpu"), "--device is for a target; leave it out"),
        (("--target", "ling", "--window", "1:2"), "--window is for a file; leave it out"),
        (
            (SYNC, "--max-reads", "0", "--tolerance", "3%"),
            "--tolerance goes with --against; give that too",
        ),
        ((SYNC, "--max-reads", "0", "--force"), "--force goes with --save-baseline; give that too"),
        (
            (SYNC, "--against", "main"),
            ".bubblescope/baselines/main.bscope: no such baseline; --save-baseline main makes one "
            "of the run that is checked",
        ),
        (("gone.json", "--max-reads", "0"), "gone.json: no such file; check the path"),
        ((SYNC, "--max-reads", "0", "--marker", "x"), None),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words, said, tmp_path):
    line = refusal(run(*words, cwd=tmp_path))
    assert line == said or (said is None and line.startswith("--marker x: no such range"))
    assert list(tmp_path.iterdir()) == []


def test_without_steps_a_limit_a_step_is_not_measured(tmp_path: Path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"traceEvents": decode_loop(1)}))
    line = refusal(run(path, "--max-step", "9s"))
    assert "no step was recorded whole, so the step cannot be checked" in line
    assert run(path, "--max-reads-in-all", "1").returncode == 0
