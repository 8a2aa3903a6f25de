from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bubblescope.capture import notes
from bubblescope.capture.cupti import library
from bubblescope.tracing import command

ROOT = Path(__file__).parents[1]
FAKE = Path(__file__).parent / "fake_torch"
USES = "import os, signal, sys, time\nimport torch\ntorch.cuda.work()\n"


@pytest.fixture
def trace(monkeypatch):
    """`bubblescope trace` of code below which CUPTI is not found and torch is the fake."""
    monkeypatch.setattr(library, "find", lambda: None)
    monkeypatch.setenv("PYTHONPATH", str(FAKE))

    def run(code, *, amiss="", step=2, steps=3, **asked):
        monkeypatch.setenv("FAKE_TORCH", amiss)
        return command.trace([sys.executable, "-c", code], step=step, steps=steps, **asked)

    return run


# -- a program that uses CUDA through torch --------------------------------------------------------


def test_torch_profiler_records_where_cupti_is_not_found(trace):
    traced = trace(USES)
    assert (traced.exit_code, traced.notes) == (0, ())
    assert traced.diagnosis.steps.number.tolist() == [2, 3, 4]
    assert traced.timeline.meta.capture == "torch.profiler"
    assert len(traced.timeline.device_ops) == 24


def test_torch_that_was_looked_for_before_it_is_imported_is_recorded(trace):
    traced = trace("import importlib.util\nimportlib.util.find_spec('torch')\n" + USES)
    assert (traced.exit_code, traced.notes) == (0, ())
    assert traced.diagnosis.steps.number.tolist() == [2, 3, 4]


def test_the_recording_says_why_and_what_is_lost(trace):
    health = {note.kind: note.note for note in trace(USES).diagnosis.health}
    assert health["fallback"].startswith(
        "recorded with torch.profiler because CUPTI could not be used: CUPTI 13.4 or later was not"
    )
    assert "the lines of blocking reads are not recorded" in health["capture"]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("sys.exit(3)", 3),
        ("1 / 0", 1),
        ("os._exit(4)", 4),
        ("signal.raise_signal(signal.SIGINT)", 128 + signal.SIGINT),
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGHUP)", 128 + signal.SIGHUP),
    ],
)
def test_the_recording_is_written_however_the_program_ends(trace, ending, code):
    traced = trace(USES + ending)
    assert traced.exit_code == code
    assert traced.diagnosis.steps.number.tolist() == [2, 3, 4]
    (note,) = traced.notes
    assert note.endswith("what it did until then was recorded")


def test_recording_stops_after_the_seconds_asked_for(trace):
    kill = "time.sleep(4)\nos.kill(os.getpid(), signal.SIGKILL)"
    traced = trace(USES + kill, max_seconds=0.2, step=200)
    assert traced.exit_code == 128 + signal.SIGKILL
    assert len(traced.timeline.device_ops) == 24
    assert "--max-seconds records longer" in traced.notes[1]


def test_what_cannot_be_saved_is_said(trace):
    traced = trace(USES, amiss="export fails")
    assert (traced.exit_code, traced.diagnosis) == (0, None)
    (note,) = traced.notes
    assert note.endswith(": the recording was lost: disk full")


def test_a_process_killed_while_it_saves_leaves_nothing_behind(trace, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    kill = (
        "def export(self, path):\n    open(path, 'w').write('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "torch.profiler.profile.export_chrome_trace = export"
    )
    traced = trace(USES + kill)
    assert traced.exit_code == 128 + signal.SIGKILL
    assert traced.notes == ("the program was ended by SIGKILL, and no recording was written",)
    assert list(tmp_path.iterdir()) == []


def test_a_profiler_of_the_program_s_own_ends_the_recording_and_works(trace):
    own = "p = torch.profiler.profile()\np.start()\np.stop()\nprint(torch.log, file=sys.stderr)"
    traced = trace(USES + own)
    assert traced.exit_code == 0
    assert len(traced.timeline.device_ops) == 24
    assert "recording cut" in {note.kind for note in traced.diagnosis.health}


def test_what_cannot_be_saved_does_not_keep_the_program_s_own_profiler_from_work(trace):
    own = "p = torch.profiler.profile()\np.start()\np.stop()\nprint(torch.log)"
    traced = trace(USES + own, amiss="export fails")
    assert (traced.exit_code, traced.diagnosis) == (0, None)
    (note,) = traced.notes
    assert note.endswith(": the recording was lost: disk full")


def test_a_profiler_that_is_at_work_already_is_left_alone(trace):
    code = "import torch\np = torch.profiler.profile()\np.start()\ntorch.cuda.work()\np.stop()"
    traced = trace(code)
    assert (traced.exit_code, traced.diagnosis) == (0, None)
    (note,) = traced.notes
    assert "torch.profiler is in use in this process already, by the program itself" in note


def test_a_process_forked_before_it_uses_cuda_records_itself(trace, capfd):
    code = (
        "import multiprocessing, os, sys\nimport torch\n"
        "child = multiprocessing.get_context('fork').Process(target=torch.cuda.work)\n"
        "child.start(); child.join(); print(child.pid); sys.exit(child.exitcode)"
    )
    traced = trace(code)
    assert (traced.exit_code, traced.notes) == (0, ())
    child = int(capfd.readouterr().out)
    assert set(traced.timeline.host_calls.process.tolist()) == {child}


def test_a_process_forked_while_recording_keeps_no_ops(trace, tmp_path):
    code = (
        f"{USES}if os.fork() == 0:\n  print(torch.log, file=open({str(tmp_path / 'log')!r}, 'w'))"
    )
    traced = trace(code + "\nelse: os.wait()")
    assert (tmp_path / "log").read_text() == "['start', 'record_function False']\n"
    assert len(traced.timeline.device_ops) == 24


# -- nothing to record -----------------------------------------------------------------------------


def test_a_machine_without_a_device_is_named_as_the_reason(trace):
    traced = trace("import torch", amiss="no device")
    assert (traced.exit_code, traced.diagnosis) == (0, None)
    assert traced.notes == ("no GPU work was recorded: torch finds no CUDA device",)


def test_torch_that_never_used_its_device_is_said(trace):
    assert trace("import torch").notes == (
        "no GPU work was recorded: torch was imported, and never used CUDA",
    )


def test_without_torch_there_is_no_fallback(trace):
    (note,) = trace("print(1)").notes
    assert note.startswith("no GPU work was recorded: CUPTI 13.4 or later was not found (")
    assert "no Python below it (but for -I, -E or -S) imported torch, whose profiler is the" in note


def test_real_torch_without_a_device_runs_as_it_would(monkeypatch, capfd):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    monkeypatch.setattr(library, "find", lambda: None)
    code = "import torch; print(torch.ones(3).sum().item())"
    traced = command.trace([sys.executable, "-c", code])
    assert capfd.readouterr() == ("3.0\n", "")
    assert traced.exit_code == 0
    assert traced.notes == ("no GPU work was recorded: torch finds no CUDA device",)


def test_the_command_says_so_in_one_line_and_exits_with_2():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available() or library.find() is not None:
        pytest.skip("there is a CUDA device, or CUPTI 13.4")
    words = [sys.executable, "-c", "import torch; print(torch.ones(3).sum().item())"]
    done = subprocess.run(
        [sys.executable, "-m", "bubblescope", "trace", "--", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    said = "bubblescope: no GPU work was recorded: torch finds no CUDA device\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "3.0\n", said)


# -- real torch's profiler -------------------------------------------------------------------------

REAL = """
import sys, threading, torch
from bubblescope.capture.backend import NothingRecorded
from bubblescope.capture.torch_profiler import TorchProfilerBackend
from torch.profiler import ProfilerActivity, profile
backend = TorchProfilerBackend()
backend.start()
torch.ones(3).add_(1)
def end():
    try:
        backend.stop(synchronise=False)
    except NothingRecorded as error:
        print(error)
"""


def real(code: str) -> str:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", REAL + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_any_thread_may_stop_torch_s_profiler():
    out = real("t = threading.Thread(target=end); t.start(); t.join()")
    assert out.startswith("torch.profiler's recording: CPU-only trace")


def test_torch_s_profiler_yields_to_the_program_s_own():
    out = real(
        "with profile(activities=[ProfilerActivity.CPU]) as own:\n    torch.ones(3).mul_(2)\n"
        "print([e.key for e in own.key_averages() if e.key == 'aten::mul_'])\nend()"
    )
    own, ours = out.splitlines()
    assert own == "['aten::mul_']"
    assert ours.startswith("torch.profiler's recording: CPU-only trace")


# -- modules and notes -----------------------------------------------------------------------------


def beside(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Python that runs code with modules of a folder."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
    )


def test_an_act_after_an_import_comes_once_when_the_module_is_whole(tmp_path):
    (tmp_path / "late.py").write_text("import sys\nvalue = 1\nsys.stdout.write('in ')\nvalue = 2\n")
    code = (
        "import importlib, sys; from bubblescope.capture.imports import after_import\n"
        "after_import('late', lambda: print('after', sys.modules['late'].value))\n"
        "import late; importlib.reload(late); print('reloaded')\n"
        "after_import('late', lambda: print('there already'))"
    )
    done = beside(tmp_path, code)
    assert done.stdout.splitlines() == ["in after 2", "in reloaded", "there already"]


def test_a_module_that_was_only_looked_for_is_acted_on_when_it_is_imported(tmp_path):
    (tmp_path / "late.py").write_text("value = 1\n")
    code = (
        "import importlib.util, sys; from bubblescope.capture.imports import after_import\n"
        "after_import('late', lambda: print('after', sys.modules['late'].value))\n"
        "print(importlib.util.find_spec('late').name, importlib.util.find_spec('late').name)\n"
        "import late; loader = late.__loader__\n"
        "print(type(loader).__name__, 'exec_module' in vars(loader))"
    )
    done = beside(tmp_path, code)
    assert done.stdout.splitlines() == ["late late", "after 1", "SourceFileLoader False"]
    assert done.stderr == ""


def test_a_module_whose_import_failed_is_acted_on_when_it_works(tmp_path):
    (tmp_path / "late.py").write_text("import os\nif 'READY' not in os.environ: 1 / 0\n")
    code = (
        "import os; from bubblescope.capture.imports import after_import\n"
        "after_import('late', lambda: print('after'))\n"
        "try:\n    import late\nexcept ZeroDivisionError:\n    print('failed')\n"
        "os.environ['READY'] = '1'; import late"
    )
    assert beside(tmp_path, code).stdout.splitlines() == ["failed", "after"]


@pytest.mark.parametrize("broken", ["1 / 0", "import not_there", "def f(: pass"])
def test_a_traceback_of_an_import_is_the_program_s_own(tmp_path, broken):
    (tmp_path / "late.py").write_text(f"{broken}\n")
    watch = "from bubblescope.capture.imports import after_import; after_import('late', print)"
    plain, watched = (beside(tmp_path, f"{first}\nimport late") for first in ("pass", watch))
    assert watched.stderr == plain.stderr
    assert plain.stderr.startswith("Traceback ")


def test_a_later_note_takes_the_place_of_an_earlier_one(tmp_path):
    notes.write(tmp_path, notes.Note(7, "idle", "nothing yet"))
    notes.write(tmp_path, notes.Note(7, "problem", "it broke"))
    notes.write(tmp_path, notes.Note(8, "idle", "nothing yet"))
    notes.withdraw(tmp_path, 8)
    notes.withdraw(tmp_path, 9)
    assert notes.read(tmp_path) == [notes.Note(7, "problem", "it broke")]
