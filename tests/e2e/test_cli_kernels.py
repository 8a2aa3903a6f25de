"""`bubblescope kernels` as a user runs it: on a file, and on the embedded loop without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import ENV, SYNC, TRACES, refusal

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="the embedded loop needs torch")


def kernels(*words: str | Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "bubblescope", "kernels", *map(str, words)]
    return subprocess.run(command, capture_output=True, timeout=90, check=False, env=ENV | env)


def told(*words: str | Path) -> dict[str, Any]:
    done = kernels(*words, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_file(decode: Path) -> None:
    """Six steps of two kernels of 30 us, each 100 us long."""
    report = told(decode)
    # The first step's beginning was not recorded.
    assert (report["steps"], report["step_ns"], report["operations"]) == (5, 100_000, 10)
    assert (report["window_ns"], report["busy_ns"], report["overlapped_ns"]) == (
        500_000,
        300_000,
        0,
    )
    rows = [(r["name"], r["calls"], r["total_ns"], r["share"]) for r in report["kernels"]]
    assert rows == [("one", 5, 150_000, 0.3), ("two", 5, 150_000, 0.3)]
    assert report["level"] == ""
    text = kernels(decode).stdout.decode()
    assert "2 operations a step in the mean, 60 us in all: busy 60 us (60.0 % of the step)." in (
        " ".join(text.split())
    )
    assert max(map(len, text.splitlines())) <= 100


def test_a_window_of_a_file(decode: Path) -> None:
    report = told(decode, "--window", "2:4")
    assert (report["steps"], report["operations"]) == (2, 4)
    assert refusal(kernels(decode, "--window", "40:50")).startswith("--window 40:50: no such steps")


def test_families_of_the_recording_that_ships() -> None:
    by_name, by_family = told(SYNC), told(SYNC, "--by", "family")
    assert len(by_family["kernels"]) < len(by_name["kernels"])
    for key in ("durations_ns", "busy_ns", "overlapped_ns", "operations", "window_ns"):
        assert by_name[key] == by_family[key]
    for family in by_family["kernels"]:
        if family["kind"] == "kernel":
            members = [r for r in by_name["kernels"] if r["family"] == family["name"]]
            assert sum(r["total_ns"] for r in members) == family["total_ns"]
            assert len(members) == family["names"]


def test_a_graph_level_recording_says_what_it_cannot_see() -> None:
    report = told(TRACES / "ling3-loop-h200.bscope")
    assert 0.99 < report["opaque_ns"] / report["durations_ns"] < 1
    text = " ".join(kernels(TRACES / "ling3-loop-h200.bscope").stdout.decode().split())
    assert "% of all durations are graph replays recorded whole" in text


@needs_torch
def test_the_embedded_loop_on_the_cpu(tmp_path: Path) -> None:
    kept = tmp_path / "ling.bscope"
    words = ("ling", "--device", "cpu", "--step", "12", "--steps", "4")
    done = kernels(*words, "--json", "-o", kept)
    assert (done.returncode, done.stderr.decode()) == (0, f"recording saved as {kept}\n")
    report = json.loads(done.stdout)
    assert report["durations"] == "the CPU stream thread's own records"
    assert (report["level"], report["nsight"], report["dram"]) == ("node", None, None)
    assert 1 <= report["steps"] <= 4
    rows = {row["name"]: row for row in report["kernels"]}
    # commit adds one to what was accepted, and that to the length.
    assert (rows["commit: add"]["where"], rows["commit: add"]["calls_per_step"]) == ("graph", 2.0)
    assert sum(row["total_ns"] for row in rows.values()) == report["durations_ns"]
    again = told(kept, "--window", "12:16")
    assert again["kernels"] == report["kernels"]
    assert again["durations"] == "the recording's own records"


@needs_torch
def test_a_target_that_cannot_be_measured_is_one_line() -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    none = refusal(kernels("ling", "--device", "cuda", **hidden))
    assert none.startswith("torch finds no CUDA device")
    assert "see `bubblescope doctor`" in none
    cpu = refusal(kernels("ling", "--device", "cpu", "--dram"))
    assert cpu == "--dram: the CPU stream thread has no counters; use --device cuda"
    assert refusal(kernels("ling", "--device", "cpu", "--layers", "9")) == (
        "target ling: has 3 layers, so 1 to 3"
    )
    assert refusal(kernels("ling", "--device", "cpu", "--passes", "x")).startswith("no pass 'x'")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere",), "nowhere: no such file, and no such target; there is: ling"),
        (("nowhere.json",), "nowhere.json"),
        ((SYNC, "--dram"), "--dram is for a target; leave it out, or name ling instead of a file"),
        ((SYNC, "--steps", "3"), "--steps is for a target"),
        ((SYNC, "--no-nsight"), "--nsight is for a target"),
        (("ling", "--marker", "x"), "--marker is for a file; a target marks its own steps"),
        (("ling", "--dram-launches", "5"), "--dram-launches is for --dram"),
        ((SYNC, "--by", "colour"), "invalid value for '--by'"),
    ],
)
def test_what_does_not_go_together(words: tuple[str | Path, ...], says: str) -> None:
    assert says in refusal(kernels(*words))


def test_help() -> None:
    done = kernels("--help")
    assert done.returncode == 0
    for option in (b"--by", b"--dram", b"--no-nsight", b"FILE_OR_TARGET"):
        assert option in done.stdout


@needs_torch
def test_what_was_measured_is_shown_though_it_cannot_be_saved(tmp_path):
    path = tmp_path / "x.bscope"
    words = ["kernels", "ling", "--device", "cpu", "--step", "5", "--steps", "2", "--json"]
    command = [sys.executable, "-m", "bubblescope", *words, "-o", str(path)]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", *command],
        capture_output=True,
        timeout=90,
        check=False,
        env=ENV,
    )
    assert json.loads(done.stdout)["kernels"]
    said = f"bubblescope: {path}: not written: File too large\n"
    assert (done.returncode, done.stderr.decode()) == (2, said)
