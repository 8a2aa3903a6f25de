"""`bubblescope compare` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.program import ENV, SYNC, TRACES, refusal

NO_SYNC = TRACES / "ling3-h200-no-sync.bscope"


def run(*words: str | Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "bubblescope", "compare", *map(str, words)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, env=ENV | env)


def test_the_sglang_pair():
    done = run(SYNC, NO_SYNC)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert max(map(len, text.splitlines())) <= 100
    flat = " ".join(text.split())
    for said in (
        "B's step is 1,186 us (13.6 %) shorter: 8,690 to 7,504 us,",
        "Gone: cudaStreamSynchronize in scheduler.run_batch, 1.0 a step, and the 829 us a step of "
        "idle that it exposed.",
        "In all 30 copies, 10 launches and 480 framework ops fewer.",
        "Device work unchanged but for 5 families of operations, 7.6 us a step together",
        "host gap 1,257 303 -954 -11.0",
        "kernel 9,909 9,899 -10 991 990",
        "copy DtoH 30 20 -10 3 2",
        "cudaStreamSynchronize 1.0 0 829 0 829 0 gone",
        "1 gone, 0 new",
    ):
        assert said in flat, said


def test_json():
    done = run(SYNC, NO_SYNC, "--json")
    told = json.loads(done.stdout)
    assert done.stdout.endswith(b"}\n")
    assert (told["version"], told["step"]["a_ns"] // 1000) == (1, 8_690)
    assert sum(c["difference"] for c in told["framework_ops"]) == -480
    assert told["device_work"]["verdict"] == "unchanged but for"


def test_a_window_and_a_marker_hold_for_both():
    words = ("--window", "2:6", "--marker", "draft", "--json")
    told = json.loads(run(SYNC, NO_SYNC, *words).stdout)
    for side in ("a", "b"):
        assert (told[side]["steps"], told[side]["marker"]) == (4, "draft")


def test_colours_stay_out_of_pipes_and_no_color():
    assert b"\x1b" not in run(SYNC, SYNC).stdout
    assert b"\x1b" not in run(SYNC, SYNC, NO_COLOR="1").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((SYNC,), "missing argument 'B'; see bubblescope compare --help"),
        ((SYNC, "gone.json"), "gone.json: no such file; check the path"),
        (
            (SYNC, NO_SYNC, "--window", "90:99"),
            f"{SYNC}: --window 90:99: no such steps; the recording has steps 0 to 8",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words, said):
    assert refusal(run(*words)) == said
