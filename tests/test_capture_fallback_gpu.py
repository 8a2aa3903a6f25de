"""Whole programs recorded by torch.profiler in place of CUPTI. Needs a CUDA device."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from tests import test_capture_command_gpu as with_cupti
from tests.test_capture_command_gpu import PROGRAM, end
from tests.test_capture_gpu import pytestmark  # noqa: F401

WITHOUT = "from bubblescope.capture.cupti import library; library.find = lambda: None\n"
OWN = """
import torch
from torch.profiler import ProfilerActivity, profile
x = torch.zeros(10, device="cuda")
for _ in range(50):
    x.add_(1); x[0].item()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as own:
    x.mul_(2); x[0].item()
print("own", sum(e.key == "aten::mul_" for e in own.key_averages()),
      sum(e.device_type.name == "CUDA" for e in own.events()) > 0)
"""


@pytest.fixture(autouse=True)
def _no_cupti(monkeypatch):
    monkeypatch.setattr(with_cupti, "DRIVER", WITHOUT + with_cupti.DRIVER)


def start(*words, **asked):
    return with_cupti.start(*words, **asked)


def trace(*words, **asked):
    return end(start(*words, **asked))


def test_a_script_is_recorded_without_a_change():
    traced, out, errors = trace(sys.executable, PROGRAM, 300, step=200, steps=10)
    assert (traced["exit"], traced["notes"], errors) == (0, [], "")
    assert "value 300.0" in out
    assert traced["steps"] == list(range(200, 210))
    assert traced["unknown"] == 0
    assert traced["ops"] >= 300 * 52  # 50 nodes, one kernel and one copy a step
    name, site, calls = traced["reads"][0]
    assert (name, site, calls) == ("cudaStreamSynchronize", None, 10)
    assert {"fallback", "capture"} <= {kind for kind, _ in traced["health"]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_ended_by_a_signal_keeps_its_recording(number):
    child = start(sys.executable, PROGRAM, 2_000_000, step=20, steps=5)
    assert child.stdout.readline() == "step 100\n"
    time.sleep(0.3)
    os.killpg(child.pid, number) if number == signal.SIGINT else child.send_signal(number)
    traced, *_ = end(child)
    assert traced["exit"] == 128 + number
    assert traced["steps"] == list(range(20, 25))


def test_recording_stops_after_the_seconds_and_the_program_runs_on():
    traced, out, errors = trace(sys.executable, PROGRAM, 30_000, step=100, steps=5, max_seconds=0.5)
    assert (traced["exit"], errors) == (0, "")
    assert "value 30000.0" in out
    assert traced["steps"] == list(range(100, 105))
    assert traced["ops"] < 30_000 * 52


def test_a_profiler_of_the_program_s_own_works_and_ends_the_recording():
    traced, out, _ = trace(sys.executable, "-c", OWN, step=10, steps=5)
    assert traced["exit"] == 0
    assert "own 1 True" in out
    assert traced["steps"] == list(range(10, 15))
    assert "recording cut" in {kind for kind, _ in traced["health"]}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_use_cuda_first_record_themselves(tmp_path, method):
    script = tmp_path / "pool.py"
    script.write_text(
        "import sys, multiprocessing\n"
        "import torch\n"
        "def work():\n"
        "    x = torch.zeros(10, device='cuda')\n"
        "    for _ in range(100):\n"
        "        x.add_(1); x[0].item()\n"
        "    print('worked', x[0].item(), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    p = multiprocessing.get_context(sys.argv[1]).Process(target=work)\n"
        "    p.start(); p.join(); sys.exit(p.exitcode)\n"
    )
    traced, out, _ = trace(sys.executable, script, method, step=20, steps=5)
    assert (traced["exit"], "worked 100.0" in out) == (0, True)
    assert traced["steps"] == list(range(20, 25))
    assert len(traced["processes"]) == 1


def test_torch_that_launches_nothing_is_said():
    traced, *_ = trace(sys.executable, "-c", "import torch; print(torch.ones(3).sum())")
    assert traced["notes"] == ["no GPU work was recorded: torch was imported, and never used CUDA"]
