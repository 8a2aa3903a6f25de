from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bubblescope.capture import notes
from bubblescope.capture.join import join
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Health
from bubblescope.tracing import command
from tests.synthetic import TraceBuilder

ROOT = Path(__file__).parents[1]
RECORDS = """
import os, signal, sys, threading, time
from bubblescope.capture.recorder import Recorder
from tests.capture_fakes import FakeBackend
backend = FakeBackend()
recorder = Recorder({"folder": sys.argv[1], "level": "node", "limit": 1, "sites": True}, backend)
recorder.begin()
for _ in range(10):
    backend.work()
print("worked", flush=True)
"""


def plan(folder: Path) -> dict[str, object]:
    return {
        "folder": str(folder),
        "root": str(ROOT),
        "level": "graph",
        "limit": 1000,
        "sites": True,
        "cupti": "/no/such/libcupti.so.13",
        "missing": "",
        "seconds": 30.0,
    }


def python(code: str, *arguments: str, env: dict[str, str] | None = None, code_only: bool = False):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env=env,
    )


# -- the program that is run -------------------------------------------------------------------


def test_python_is_put_before_a_script_and_a_module():
    assert command.program(["-m", "json.tool"]) == [sys.executable, "-m", "json.tool"]
    assert command.program(["no/such/serve.py", "-x"]) == [sys.executable, "no/such/serve.py", "-x"]
    assert command.program([sys.executable, "a.py"]) == [sys.executable, "a.py"]


@pytest.mark.parametrize(
    ("words", "says"), [([], "nothing to run"), (["no-such-program"], "no such program")]
)
def test_a_program_that_is_not_there_is_refused(words, says):
    with pytest.raises(BubblescopeError, match=says):
        command.program(words)


def test_a_script_that_is_not_executable_is_told_what_runs_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "serve").write_text("print(1)\n")
    with pytest.raises(BubblescopeError) as refused:
        command.program(["serve", "--port", "8000"])
    assert str(refused.value) == (
        "serve: cannot be run by itself; write what runs it before it: -- python serve"
    )


def test_a_machine_without_room_for_recordings_is_told_so_before_the_program_runs(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(BubblescopeError, match=r"no folder for recordings .*; set TMPDIR"):
        command.trace([sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"])
    assert list(tmp_path.iterdir()) == []


def test_exit_codes_and_output_are_the_program_s_own(tmp_path, capfd):
    env = command.environment(plan(tmp_path))
    assert command.run([sys.executable, "-c", "print('mine'); raise SystemExit(7)"], env) == 7
    assert capfd.readouterr().out == "mine\n"
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert command.run([sys.executable, "-c", kill], env) == -signal.SIGKILL


def signalled(code: str, number: signal.Signals) -> int:
    """The exit code of `command.run` that got a signal alone when its program had printed "up"."""
    parent = (
        "import sys; from bubblescope.tracing import command;"
        "sys.exit(command.run([sys.executable, '-c', sys.argv[1]], None))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        child.send_signal(number)
        return child.wait(30)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_a_signal_goes_to_the_program_and_what_it_does_counts(name):
    code = (
        "import signal, sys, time\n"
        f"signal.signal(signal.{name}, lambda *a: sys.exit(5))\n"
        "print('up', flush=True)\n"
        "time.sleep(30)\n"
    )
    assert signalled(code, signal.Signals[name]) == 5


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT"])
def test_what_a_terminal_sends_to_both_is_left_to_the_program(name):
    code = "import sys, time; print('up', flush=True); time.sleep(1); sys.exit(5)"
    assert signalled(code, signal.Signals[name]) == 5


@pytest.mark.parametrize(
    ("code", "recorded", "says"),
    [
        (0, True, []),
        (3, True, ["the program ended with exit code 3; what it did until then was recorded"]),
        (-11, False, ["the program was ended by SIGSEGV, and no recording was written"]),
    ],
)
def test_how_the_program_ended_is_one_line(code, recorded, says):
    assert command.ending(code, recorded) == says


# -- what is injected --------------------------------------------------------------------------


def test_pythons_without_cuda_are_left_alone_and_their_own_sitecustomize_runs(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.mine = 'ran'\n")
    env = command.environment(plan(tmp_path)) | {
        "PYTHONPATH": os.pathsep.join([str(command.INJECT), str(own)])
    }
    code = (
        "import sys, sitecustomize; print(mine, sitecustomize.__file__);"
        "print([m for m in sys.modules if m.startswith(('bubblescope', 'numpy', 'json'))])"
    )
    done = python(code, env=env)
    assert done.stdout.splitlines() == [f"ran {own / 'sitecustomize.py'}", "[]"], done.stderr


def test_the_environment_keeps_the_program_s_own_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    env = command.environment(plan(tmp_path))
    assert env["PYTHONPATH"] == f"{command.INJECT}{os.pathsep}/mine"
    assert json.loads(env["BUBBLESCOPE_CHILD"])["level"] == "graph"


def test_a_python_that_cannot_record_runs_on_and_says_why(tmp_path):
    done, found = with_cupy(tmp_path, "import cupy; print(cupy.value)")
    assert (done.stdout, done.stderr, done.returncode) == ("3\n", "", 0)
    assert (found.timelines, found.problems, found.forked) == ((), (), 0)
    (reason,) = found.idle
    assert "cupti" in reason.lower()
    assert reason.endswith("torch.profiler, the fallback, records programs that import torch")
    assert "\n" not in reason


def with_cupy(tmp_path, code: str, text: str | None = None):
    """Runs code below which a module `cupy` can be imported; `text` in place of the plan."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "cupy.py").write_text("value = 3\n")
    (tmp_path / "out").mkdir()
    env = command.environment(plan(tmp_path / "out"))
    env["PYTHONPATH"] += os.pathsep + str(tmp_path / "fake")
    env["BUBBLESCOPE_CHILD"] = text or env["BUBBLESCOPE_CHILD"]
    return python(code, env=env), command.collect(tmp_path / "out")


def test_a_python_that_is_too_old_runs_on_and_says_so(tmp_path):
    old = "import sys; sys.version_info = (3, 9, 18, 'final', 0); import cupy; print(cupy.value)"
    done, found = with_cupy(tmp_path, old)
    assert (done.stdout, done.stderr, done.returncode) == ("3\n", "", 0)
    (problem,) = found.problems
    assert problem.endswith(f"{sys.executable} is Python 3.9; recording needs 3.11 or later")


@pytest.mark.parametrize("text", ["no plan", "{}"])
def test_whatever_goes_wrong_the_program_s_import_goes_on(tmp_path, text):
    done, _ = with_cupy(tmp_path, "import cupy; print(cupy.value)", text)
    assert (done.stdout, done.stderr, done.returncode) == ("3\n", "", 0)


def test_what_every_python_loads_is_written_for_those_from_3_6_on():
    text = (command.INJECT / "sitecustomize.py").read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 6))
    assert "annotations" not in text  # the future that 3.6 does not know


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("1 / 0", 1),
        ("signal.raise_signal(signal.SIGINT)", -signal.SIGINT),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP),
        ("os._exit(4)", 4),
        ("sys.stdout.flush(); threading.Thread(target=os._exit, args=[5]).start()", 5),
        ("backend.stopping = lambda: signal.raise_signal(signal.SIGTERM)", -signal.SIGTERM),
        ("recorder._enough.set(); time.sleep(2); os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_a_recording_is_written_however_the_process_ends(tmp_path, ending, code):
    done = python(RECORDS + ending, str(tmp_path))
    assert done.returncode == code, done.stderr
    assert done.stdout == "worked\n"
    found = command.collect(tmp_path)
    assert (found.problems, found.idle, found.forked) == ((), (), 0)
    (timeline,) = found.timelines
    assert len(timeline.device_ops) == 10
    assert timeline.meta.capture == "fake"


@pytest.mark.parametrize(
    ("ending", "code"),
    [("os.execv(sys.executable, [sys.executable, '-c', 'pass'])", 0), ("os.abort()", -6)],
)
def test_a_process_that_hands_nothing_over_is_said_to(tmp_path, ending, code):
    assert python(RECORDS + ending, str(tmp_path)).returncode == code
    found = command.collect(tmp_path)
    assert (found.timelines, found.problems, found.forked) == ((), (), 0)
    assert command.nothing(found, "", 0) == [
        "no GPU work was recorded: a process ended by SIGKILL, an abort or exec, and handed no "
        "recording over"
    ]
    assert command.nothing(found, "", -6) == []  # how the program ended is said already


def test_what_cannot_be_said_or_read_stops_nobody(tmp_path):
    notes.write(tmp_path / "full", notes.Note(7, "idle", "no such folder"))
    (tmp_path / "8.json").write_text("")
    (tmp_path / "9.json").write_text('{"process": 9, "kind": "problem", "text": "it broke"}')
    assert command.collect(tmp_path).problems == (
        "process 8: what it had to say is not whole",
        "process 9: it broke",
    )


@pytest.mark.parametrize("leave", ["sys.exit(0)", "os._exit(0)"])
def test_a_forked_child_writes_nothing(tmp_path, leave):
    done = python(RECORDS + f"os.fork() or {leave}\ntime.sleep(.5)\n", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_forked_children_that_use_cuda_are_counted(tmp_path):
    use = (
        "import torch\nfor use in (True, False, True):\n"
        "    if os.fork() == 0:\n        use and torch.cuda.work()\n        os._exit(0)\n"
        "    os.wait()"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/fake_torch")])}
    done = python(RECORDS + use, str(tmp_path), env=env)
    assert done.returncode == 0, done.stderr
    found = command.collect(tmp_path)
    assert (len(found.timelines), found.problems, found.forked) == (1, (), 2)
    assert command.nothing(found, "", 0) == [
        "no GPU work was recorded: 2 forked processes used CUDA; no recording survives a fork; "
        "multiprocessing.set_start_method('spawn') lets its children be recorded"
    ]


def test_a_process_that_hangs_can_still_leave(tmp_path):
    hang = "from bubblescope.capture import recorder as r; r.LEAVE_S = 0.2\n"
    hang += "backend.stopping = lambda: time.sleep(60)\nos._exit(6)"
    began = time.monotonic()
    assert python(RECORDS + hang, str(tmp_path)).returncode == 6
    assert time.monotonic() - began < 30


def test_pythons_that_hide_from_the_environment_are_named_as_a_reason():
    none = command.Collected((), (), (), 0)
    for missing in ("", "CUPTI 13.4 or later was not found"):
        (line,) = command.nothing(none, missing, 0)
        assert "-I, -E or -S" in line


# -- what comes of it --------------------------------------------------------------------------


def recording(process: int, steps: int = 30, uuid: str = "GPU-a", frame: int = -1):
    trace = TraceBuilder()
    trace.process = trace.thread = process
    for k in range(steps):
        t = 100_000 * k
        trace.launch("one", at=t, dur=5_000, start=t + 6_000, run=30_000)
        trace.launch("two", at=t + 6_000, dur=5_000, start=t + 36_000, run=30_000)
        trace.sync(at=t + 12_000, dur=60_000)
    made = trace.timeline()
    meta = type(made.meta)(
        **{
            **{f: getattr(made.meta, f) for f in made.meta.__struct_fields__},
            "about": {"gpu 0 uuid": uuid},
        }
    )
    return replace(made, meta=meta)


def test_the_steps_asked_for_are_diagnosed():
    diagnosis, notes = command.at_steps(recording(1), 10, 5, None)
    assert notes == []
    assert diagnosis.steps.number.tolist() == [10, 11, 12, 13, 14]


def test_steps_that_were_not_reached_are_said_and_everything_is_diagnosed():
    diagnosis, (note,) = command.at_steps(recording(1), 200, 10, None)
    assert note.startswith("step 200 was not recorded: there are steps 0 to ")
    assert len(diagnosis.steps.number) >= 29
    _, (note,) = command.at_steps(recording(1), 25, 10, None)
    assert note.startswith("only ")


def test_a_marker_that_is_not_there_does_not_cost_the_run():
    diagnosis, (note,) = command.at_steps(recording(1), 10, 5, "nope")
    assert note.startswith("--marker nope: no such range in the recording")
    assert note.endswith("; steps were found without it")
    assert diagnosis.steps.number.tolist() == [10, 11, 12, 13, 14]


def test_without_steps_everything_is_diagnosed():
    trace = TraceBuilder().launch("one", at=0, dur=5, start=10, run=10)
    diagnosis, (note,) = command.at_steps(trace.timeline(), 0, 1, None)
    assert note.startswith("no steps were found")
    assert diagnosis.total("busy_ns") == 10


def test_processes_join_and_devices_are_told_apart_by_uuid():
    one, two = recording(1, uuid="GPU-b"), recording(2, uuid="GPU-a")
    both = join([one, two])
    assert len(both.device_ops) == len(one.device_ops) + len(two.device_ops)
    assert set(
        zip(both.device_ops.process.tolist(), both.device_ops.device.tolist(), strict=True)
    ) == {
        (1, 1),
        (2, 0),
    }
    same = join([recording(1), recording(2)])
    assert set(same.device_ops.device.tolist()) == {0}
    assert join([one]) is one


def test_frames_of_joined_processes_stay_those_of_each():
    from bubblescope.timeline import Frames

    def with_frame(process: int, line: int):
        made = recording(process)
        calls = replace(made.host_calls, frame=np.zeros(len(made.host_calls), np.int64))
        frames = Frames.build(1, file=["a.py"], line=[line], function=["f"])
        return replace(made, host_calls=calls, frames=frames, health=Health.empty())

    both = join([with_frame(1, 10), with_frame(2, 20)])
    lines = both.frames.line[both.host_calls.frame]
    assert set(lines[both.host_calls.process == 1].tolist()) == {10}
    assert set(lines[both.host_calls.process == 2].tolist()) == {20}
