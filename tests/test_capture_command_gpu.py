"""Whole programs below `bubblescope trace`. Needs a CUDA device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.test_capture_gpu import pytestmark  # noqa: F401

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests" / "gpu_program.py"
READ_LINE = next(n for n, t in enumerate(PROGRAM.read_text().splitlines(), 1) if "# READ" in t)
DRIVER = """
import json, sys
from bubblescope.tracing import command
asked = json.loads(sys.argv[1])
t = command.trace(sys.argv[2:], **asked)
d = t.diagnosis
out = {"exit": t.exit_code, "notes": t.notes}
if d is not None:
    out |= {
        "steps": d.steps.number.tolist(), "marker": d.marker, "unknown": d.total("unknown_ns"),
        "window": d.total("window_ns"), "step_ns": d.steps.median(d.steps.length_ns),
        "reads": [(r.name, r.site and [r.site.file, r.site.line], r.calls) for r in d.reads],
        "processes": sorted(set(t.timeline.device_ops.process.tolist())),
        "ops": len(t.timeline.device_ops), "health": [(h.kind, h.count) for h in d.health],
        "warnings": d.warnings, "ranges": list(t.timeline.ranges.name.values)[:8],
        "names": sorted(set(t.timeline.device_ops.name.values))[:4],
    }
print("TRACED " + json.dumps(out))
"""


def start(*words, **asked):
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(asked), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )


def end(child):
    out, errors = child.communicate(timeout=120)
    lines = [x for x in out.splitlines() if x.startswith("TRACED ")]
    assert lines, errors[-3000:]
    traced = json.loads(lines[0][len("TRACED ") :])
    print("\n", {k: v for k, v in traced.items() if k != "ranges"})
    return traced, out, errors


def trace(*words, **asked):
    return end(start(*words, **asked))


def test_a_script_is_recorded_without_a_change():
    traced, out, errors = trace(sys.executable, PROGRAM, 300, step=200, steps=10)
    assert traced["exit"] == 0
    assert traced["notes"] == []
    assert "value 300.0" in out
    assert errors == ""
    assert traced["steps"] == list(range(200, 210))
    assert traced["unknown"] == 0
    (name, site, calls), *_ = traced["reads"]
    assert (name, calls) == ("cudaStreamSynchronize", 10)
    assert site == [str(PROGRAM), READ_LINE]


def test_a_module_at_node_level():
    traced, *_ = trace("-m", "tests.gpu_program", 60, step=20, steps=5, level="node")
    assert traced["exit"] == 0
    assert traced["steps"] == list(range(20, 25))
    assert traced["unknown"] == 0
    assert traced["ops"] > 60 * 51


def test_ctrl_c_keeps_what_was_recorded():
    child = start(sys.executable, PROGRAM, 2_000_000, step=20, steps=5)
    assert child.stdout.readline() == "step 100\n"
    time.sleep(0.3)
    os.killpg(child.pid, signal.SIGINT)
    traced, _, errors = end(child)
    print(errors[-1500:])
    assert traced["exit"] == 128 + signal.SIGINT
    assert traced["steps"] == list(range(20, 25))
    assert "KeyboardInterrupt" in errors
    assert "ignored" not in errors
    (note,) = traced["notes"]
    assert note.startswith("the program was ended by SIGINT")


def test_a_terminated_program_writes_its_recording():
    child = start(sys.executable, PROGRAM, 2_000_000, step=20, steps=5)
    assert child.stdout.readline() == "step 100\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGTERM)
    traced, *_ = end(child)
    assert traced["exit"] == 128 + signal.SIGTERM
    assert traced["steps"] == list(range(20, 25))


@pytest.mark.parametrize(
    ("ending", "code", "recorded"),
    [("raise", 1, True), ("exit", 3, True), ("leave", 4, True), ("abort", 134, False)],
)
def test_a_program_that_fails_keeps_its_exit_code(ending, code, recorded):
    traced, *_ = trace(sys.executable, PROGRAM, 150, ending, step=20, steps=5)
    assert traced["exit"] == code
    assert len(traced["notes"]) == 1
    assert ("steps" in traced) is recorded


def test_a_program_without_gpu_work_is_said_to_have_none():
    for code in ("print(1)", "import torch; print(torch.ones(3).sum().item())"):
        traced, *_ = trace(sys.executable, "-c", code)
        assert traced["exit"] == 0
        (note,) = traced["notes"]
        assert note.startswith("no GPU work was recorded")


def test_a_step_that_is_never_reached_is_said():
    traced, *_ = trace(sys.executable, PROGRAM, 120, step=200, steps=10)
    (note,) = traced["notes"]
    assert note.startswith("step 200 was not recorded: there are steps 0 to 119")


def test_a_program_that_holds_cupti_is_told_and_runs_on():
    code = (
        "import ctypes, os\n"
        "c = ctypes.CDLL(os.environ['NVTX_INJECTION64_PATH'], mode=ctypes.RTLD_GLOBAL)\n"
        "f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32,"
        " ctypes.c_void_p)(lambda *a: None)\n"
        "h = ctypes.c_void_p()\n"
        "assert c.cuptiSubscribe(ctypes.byref(h), f, None) == 0\n"
        "import torch; print(torch.ones(3, device='cuda').sum().item())"
    )
    traced, out, _ = trace(sys.executable, "-c", code)
    assert traced["exit"] == 0
    assert "3.0" in out
    (note,) = traced["notes"]
    assert "CUPTI is in use" in note


def test_children_record_too():
    code = (
        "import subprocess, sys\n"
        "w = [sys.executable, sys.argv[1], '120']\n"
        "a, b = subprocess.Popen(w), subprocess.Popen(w)\n"
        "sys.exit(a.wait() + b.wait())"
    )
    traced, *_ = trace(sys.executable, "-c", code, PROGRAM, step=20, steps=5)
    assert traced["exit"] == 0
    assert len(traced["processes"]) == 2


def test_spawned_workers_record_and_forked_ones_are_left_in_peace(tmp_path):
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
    traced, out, _ = trace(sys.executable, script, "spawn", step=20, steps=5)
    assert (traced["exit"], "worked 100.0" in out) == (0, True)
    assert traced["steps"] == list(range(20, 25))
    traced, out, _ = trace(sys.executable, script, "fork", step=20, steps=5)
    assert (traced["exit"], "worked 100.0" in out) == (0, True)
    (note,) = traced["notes"]
    assert note.startswith("no GPU work was recorded: 1 forked process used CUDA; CUPTI does not")


def test_recording_stops_at_the_limit_and_the_program_runs_on():
    traced, out, _ = trace(
        sys.executable, PROGRAM, 30_000, step=100, steps=5, max_operations=20_000
    )
    assert traced["exit"] == 0
    assert "value 30000.0" in out
    assert traced["steps"] == list(range(100, 105))
