"""`bubblescope ablate` on the embedded loop, as a user runs it on a machine without a GPU."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.program import ENV

pytest.importorskip("torch", reason="the embedded loop needs torch")

SMALL = ("--device", "cpu", "--rounds", "2", "--steps", "10")
QUICK = (*SMALL, "--starts", "1", "--no-gates")
PLAN = (
    "plan: 2 rows, 1 start a side, 2 rounds of 10 steps in each (20 before them not timed); "
    "rows alternate round by round within a start\n"
)
MINE = """
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from bubblescope.targets.ling.scheduler import Scheduler
from optimizations.passes import PassEntry

@dataclass(frozen=True, slots=True)
class Nothing(PassEntry):
    name: str = "nothing"
    summary: str = "Changes nothing."
    addresses: tuple = ()
    targets: tuple = ("ling",)
    live: bool = True

    @contextmanager
    def applied(self, target):
        yield

@dataclass(frozen=True, slots=True)
class DropsAToken(Nothing):

    @contextmanager
    def applied(self, target):
        take = Scheduler._take_results

        def drop(this):
            take(this)
            if len(this.tokens) > 40:
                del this.tokens[-1]

        with patch.object(Scheduler, "_take_results", drop):
            yield
"""


def ablate(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bubblescope", "ablate", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=150, check=False, env=ENV, cwd=cwd
    )


def children() -> set[str]:
    """Command lines of processes of an ablation."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"bubblescope.ablate.child" in words:
            found.add(entry.parent.name)
    return found


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """One start of seq-len-sync, and the samples of it."""
    path = tmp_path_factory.mktemp("ablate") / "x.json"
    words = ("--passes", "seq-len-sync", "--out", path, "--recordings", "rows", "--json")
    done = ablate(*QUICK, *words, cwd=path.parent)
    assert done.returncode == 0, done.stderr
    first, estimate, saved, recorded = done.stderr.splitlines(keepends=True)
    assert first == PLAN
    assert estimate.startswith("about ")
    assert estimate.endswith(" s for the timed rounds\n")
    assert saved == f"samples saved as {path}\n"
    assert recorded == "recordings of 2 rows saved in rows; look at --window 22:32\n"
    return json.loads(done.stdout), path


def test_each_row_has_measurement_and_prediction_side_by_side(measured) -> None:
    from bubblescope.report.ablation_files import AblationJson

    report, _ = measured
    none, sync = report["rows"]
    assert [none["passes"], sync["passes"]] == [[], ["seq-len-sync"]]
    assert none["step_ns"] > 0
    # A token stands for so much of a step.
    for row in (none, sync):
        assert row["tpot_ns"] == pytest.approx(row["step_ns"] / row["tokens_per_step"], rel=1e-4)
    assert none["tokens_per_step"] == sync["tokens_per_step"]  # the same steps each time
    assert none["launches"] == 8  # 4 graphs, the length, the plan in 2 copies, the results
    assert (none["reads"], sync["reads"]) == (2, 1)
    change = sync["change"]
    assert change["against"] == "none"
    assert change["interval"] is None
    assert change["verdict"] in ("noise", "no interval")
    assert (sync["predicted_ns"] is None) == (change["why_not"] != "")
    if sync["predicted_ns"] is not None:
        predicted = sync["predicted_ns"] / none["step_ns"] - 1
        assert change["predicted"] == pytest.approx(predicted, abs=1e-4)
    assert sync["gate"] == "not tested"
    assert "simulated acceptance" in report["about"]["acceptance"]
    assert msgspec.json.decode(json.dumps(report), type=AblationJson).rows[1].label == (
        "+ seq-len-sync"
    )


def test_the_recording_of_each_row_says_what_stands_in_it(measured) -> None:
    report, path = measured
    files = sorted((path.parent / "rows").iterdir())
    assert [file.name for file in files] == ["0-none.bscope", "1-seq-len-sync.bscope"]
    for file, row in zip(files, report["rows"], strict=True):
        command = [sys.executable, "-m", "bubblescope", "diagnose", str(file), "--json"]
        told = json.loads(
            subprocess.run(
                [*command, "--window", "22:32"],
                capture_output=True,
                check=True,
                env=ENV,
                timeout=60,
            ).stdout
        )
        assert sum(read["calls_per_step"] for read in told["reads"]) == row["reads"]
    done = ablate(*QUICK, "--passes", "seq-len-sync", "--recordings", "rows", cwd=path.parent)
    assert (done.returncode, done.stderr) == (
        2,
        "bubblescope: rows/0-none.bscope: exists already; --force replaces it\n",
    )


def test_the_samples_are_shown_in_every_form_without_measuring_again(measured) -> None:
    report, path = measured
    before = path.read_bytes()
    begun = time.monotonic()
    table = ablate("--resume", path, "--no-gates", cwd=path.parent)
    assert time.monotonic() - begun < 10  # a start alone takes longer than reading them
    assert table.returncode == 0
    assert "\x1b" not in table.stdout
    assert "+ seq-len-sync" in table.stdout
    assert "fewer than 3 starts a side: no interval" in table.stdout
    assert max(map(len, table.stdout.splitlines())) <= 100

    lines = list(
        csv.DictReader(
            io.StringIO(
                ablate("--resume", path, "--no-gates", "--format", "csv", cwd=path.parent).stdout
            )
        )
    )
    assert [int(line["step_ns"]) for line in lines] == [r["step_ns"] for r in report["rows"]]
    assert lines[1]["step_low_ns"] == ""
    assert float(lines[1]["change"]) == report["rows"][1]["change"]["change"]

    told = ablate("--resume", path, "--no-gates", "--format", "markdown", cwd=path.parent).stdout
    rows = [line for line in told.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert len({row.count("|") for row in rows}) == 1
    assert path.read_bytes() == before


def test_starts_are_added_to_what_is_there(measured, tmp_path: Path) -> None:
    _, path = measured
    copy = tmp_path / "x.json"
    copy.write_bytes(path.read_bytes())
    done = ablate("--resume", copy, "--starts", "3", "--no-gates", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["parts"], report["rows"][0]["starts"], report["rows"][0]["rounds"]) == (2, 3, 6)
    change = report["rows"][1]["change"]
    low, high = change["interval"]
    assert low <= change["change"] <= high
    assert change["verdict"] in ("faster", "slower", "noise")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def test_a_pass_that_does_nothing_is_noise(mine: Path) -> None:
    words = (*SMALL, "--starts", "3", "--no-gates", "--passes", "mine:Nothing", "--json")
    # One in a hundred is expected to stand out by chance: once more is enough to tell.
    for _ in range(2):
        done = ablate(*words, cwd=mine)
        assert done.returncode == 0, done.stderr
        change = json.loads(done.stdout)["rows"][1]["change"]
        if change["verdict"] == "noise":
            break
    assert change["verdict"] == "noise"
    assert change["why_not"] == "mine:Nothing: declares no model"


def test_a_pass_that_drops_a_token_fails_and_counts_in_no_total(mine: Path) -> None:
    words = (*SMALL, "--starts", "1", "--passes", "mine:DropsAToken", "--json")
    done = ablate(*words, cwd=mine)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    row = report["rows"][1]
    assert row["gate"] == "failed"
    assert row["change"]["verdict"] == "failed"
    assert any(g["verdict"] == "failed" for g in row["gates"])
    assert report["total"] is None


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """An ablation that Ctrl-C can be sent to."""
    words = ("--device", "cpu", "--passes", "seq-len-sync", *words)
    return subprocess.Popen(
        [sys.executable, "-m", "bubblescope", "ablate", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENV,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_ctrl_c_before_the_first_round_leaves_the_file_of_another_run_alone(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("another plan")
    child = started(tmp_path, "--no-gates", "--out", "x.json", "--force")
    assert child.stderr is not None
    assert child.stderr.readline().startswith("plan: ")
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130
    assert stderr == "bubblescope: stopped\n"  # and not that x.json goes on
    assert (tmp_path / "x.json").read_text() == "another plan"


@pytest.mark.skipif(not Path("/proc").exists(), reason="no /proc to find processes by")
def test_ctrl_c_keeps_finished_rounds_and_leaves_no_process(tmp_path: Path) -> None:
    before = children()
    words = ("--rounds", "50", "--steps", "10", "--starts", "2", "--no-gates")
    child = started(tmp_path, *words, "--out", "x.json")
    assert child.stderr is not None
    lines = [child.stderr.readline(), child.stderr.readline()]  # rounds begin after the second
    assert lines[1].startswith("about ")
    time.sleep(2)
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=30)
    assert (child.returncode, stdout) == (130, "")
    assert stderr == (
        "bubblescope: finished rounds are in x.json; --resume x.json goes on\n"
        "bubblescope: stopped\n"
    )
    assert children() <= before  # one of another test may still have been ending then
    kept = json.loads((tmp_path / "x.json").read_text())
    assert 0 < len(kept["rounds"]) < 100
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--passes", "nope"), "no pass 'nope'; there are: "),
        (("--passes", ""), "no pass to measure; name some with --passes"),
        (("--target", "nope"), "no target 'nope'; there are: "),
        (("--resume", "x.json"), "x.json: cannot be read: No such file or directory"),
        (("--out", "x.csv"), "x.csv: give the file the ending .json"),
        (("--out", "no/x.json"), "no/x.json: there is no folder no"),
        (("--json", "--format", "csv"), "--json and --format are two forms of the same; give one"),
        (("--passes", "mine:Pass"), "pass mine:Pass: No module named 'mine'"),
        (("--rounds", "0"), "invalid value for '--rounds': 0 is not in the range x>=1"),
        (("--ladder", "up"), "invalid value for '--ladder': 'up' is not one of "),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words, said, tmp_path: Path) -> None:
    done = ablate(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"bubblescope: {said}")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_and_nothing_is_run(measured) -> None:
    _, path = measured
    before = path.read_bytes()
    done = ablate(*QUICK, "--out", path, cwd=path.parent)
    assert done.returncode == 2
    assert done.stderr == f"bubblescope: {path}: exists already; --force replaces it\n"
    assert path.read_bytes() == before


def test_a_target_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = ablate("--device", "cuda", "--no-gates", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "bubblescope: target ling: torch finds no CUDA device; use the CPU one"
    )
