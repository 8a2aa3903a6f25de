"""`bubblescope trace` on the embedded loop, as a user runs it on a machine without a GPU."""

from __future__ import annotations

import json
import linecache
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.program import ENV

pytest.importorskip("torch", reason="the embedded loop needs torch")

SCHEDULER = Path(__file__).parents[2] / "bubblescope" / "targets" / "ling" / "scheduler.py"
PASSES = (
    "seq-len-sync, draft-extend-graph, pdl-chain, router-moe, bf16-heads, bf16-gate, bf16-lm-head, "
    "staged-kda, glue-graph, verify-attention, replay-ssm"
)
TRACE = ("trace", "--device", "cpu", "--step", "30", "--steps", "6")


def bubblescope(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bubblescope", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=90, check=False, env=ENV, cwd=cwd
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    path = tmp_path_factory.mktemp("trace") / "ling.bscope"
    done = bubblescope(*TRACE, "--json", "-o", path)
    assert (done.returncode, done.stderr) == (0, f"recording saved as {path}\n")
    return json.loads(done.stdout), path


def test_the_steps_asked_for(recorded):
    report, _ = recorded
    # Where the system held a worker up its step is partly unknown; not in all of them.
    assert 3 <= report["steps"]["count"] <= 6
    assert [step["number"] for step in report["steps"]["each"]] == [30, 31, 32, 33, 34, 35]
    assert report["steps"]["marker"] == "step"
    assert report["busy_ns"] + report["idle_ns"] + report["unknown_ns"] == report["window_ns"]


def test_the_read_back_is_the_first_read_site_at_its_line(recorded):
    read = recorded[0]["reads"][0]
    assert read["name"] == "cpuStreamSynchronize"
    assert read["calls_per_step"] == 1
    assert Path(read["site"]["file"]) == SCHEDULER
    assert "self._device.synchronize()" in linecache.getline(str(SCHEDULER), read["site"]["line"])
    finding = next(f for f in recorded[0]["findings"] if f["kind"] == "blocking read")
    assert finding["passes"] == ["seq-len-sync"]


def test_the_report_says_what_it_rests_on():
    done = bubblescope(*TRACE)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "CPU thread" in done.stdout
    assert "not a GPU" in done.stdout
    assert "simulated acceptance" in done.stdout


def test_with_the_pass_the_read_is_gone():
    done = bubblescope(*TRACE, "--passes", "seq-len-sync", "--json")
    assert done.returncode == 0
    names = [read["name"] for read in json.loads(done.stdout)["reads"]]
    assert "cpuStreamSynchronize" not in names


def test_the_recording_is_diagnosed_again(recorded):
    report, path = recorded
    done = bubblescope("diagnose", path, "--window", "30:36", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == report


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--passes", "nope"), f"no pass 'nope'; there are: {PASSES}"),
        (("--target", "nope"), "no target 'nope'; there are: ling, sglang"),
        (("--marker", "x"), "--marker is for a program; a target marks its own steps"),
        (
            ("--passes", "seq-len-sync", "--", "python", "x.py"),
            "--passes is for a target; leave it out, or the program",
        ),
        (
            ("--step", "-1"),
            "invalid value for '--step': -1 is not in the range x>=0; see bubblescope trace --help",
        ),
        (("-o", "x.json"), "x.json: give the file the ending .bscope"),
        (
            ("--device", "cpu", "--passes", "pdl-chain"),
            "target ling: the CPU stream thread runs torch's operations only, no Triton kernels",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words, said, tmp_path):
    done = bubblescope("trace", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"bubblescope: {said}\n")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_and_nothing_is_run(recorded):
    _, path = recorded
    before = path.read_bytes()
    done = bubblescope(*TRACE, "-o", path)
    assert done.returncode == 2
    assert done.stderr == f"bubblescope: {path}: exists already; --force replaces it\n"
    assert path.read_bytes() == before


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    command = [sys.executable, "-m", "bubblescope", "trace", "--device", "cpu", "--step", "100000"]
    child = subprocess.Popen(
        [*command, "-o", "x.bscope"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(8)  # long enough to be at work on a slow machine
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=20)
    assert (child.returncode, stdout, stderr) == (130, "", "bubblescope: stopped\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("raise RuntimeError('no driver\\nsecond')", "RuntimeError: no driver"),
        (
            "raise OSError('libcudart.so.13: no such file')",
            "OSError: libcudart.so.13: no such file",
        ),
        ("raise ImportError('libfoo.so: undefined')", "ImportError: libfoo.so: undefined"),
        ("syntax error", "SyntaxError: invalid syntax"),
        ("raise KeyError", "KeyError"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_one_line(tmp_path, broken, said):
    (tmp_path / "torch.py").write_text(broken)
    path = os.pathsep.join([str(SCHEDULER.parents[3]), str(tmp_path)])
    for command in (["trace", "--step", "5"], ["kernels", "ling"], ["ablate"]):
        done = subprocess.run(
            [sys.executable, "-m", "bubblescope", *command],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            env=ENV | {"PYTHONPATH": path},
        )
        line = f"target ling: torch cannot be imported ({said}); see `bubblescope doctor`"
        assert (done.returncode, done.stdout) == (2, ""), command
        assert done.stderr == f"bubblescope: {line}\n", command


# -- a program -------------------------------------------------------------------------------------

FAKE = Path(__file__).parents[1] / "fake_torch"


@pytest.mark.parametrize(("code", "ends"), [(0, 2), (5, 5)])
def test_a_run_that_cannot_be_saved_is_still_reported(tmp_path, code, ends):
    path = tmp_path / "x.bscope"
    program = (
        "import sys, torch; torch.cuda.work(); "
        f"open({str(path)!r}, 'w').write('mine'); sys.exit({code})"
    )
    words = ["trace", "--step", "2", "--steps", "3", "--json", "-o", path]
    done = subprocess.run(
        [sys.executable, "-m", "bubblescope", *words, "--", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=ENV | {"PYTHONPATH": os.pathsep.join([str(FAKE.parents[1]), str(FAKE)])},
    )
    assert json.loads(done.stdout)["steps"]["count"] == 3
    *_, last = done.stderr.splitlines()
    assert last == f"bubblescope: {path}: exists already; --force replaces it"
    assert done.returncode == ends
    assert path.read_text() == "mine"


def test_the_embedded_loop_that_cannot_be_saved_is_still_reported(tmp_path):
    path = tmp_path / "x.bscope"
    words = [sys.executable, "-m", "bubblescope", *TRACE, "--json", "-o", str(path)]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", *words],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=ENV,
    )
    assert [step["number"] for step in json.loads(done.stdout)["steps"]["each"]] == [*range(30, 36)]
    said = f"bubblescope: {path}: not written: File too large\n"
    assert (done.returncode, done.stderr) == (2, said)
