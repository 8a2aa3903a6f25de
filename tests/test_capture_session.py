from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import bubblescope
from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from bubblescope.timeline import bscope
from tests.capture_fakes import FakeBackend


def run(backend, total=12, **asked):
    with bubblescope.trace(backend=backend, **asked) as t:
        for _ in range(total):
            backend.work()
            t.step()
            if t.done:
                break
    return t


def test_the_steps_asked_for_are_recorded_and_diagnosed():
    backend = FakeBackend()
    t = run(backend, step=4, steps=3)
    assert backend.log == ["prepare", "start", "stop"]
    assert t.timeline.steps.number.tolist() == [4, 5, 6]
    assert len(t.timeline.device_ops) == 4  # and one step before, to see how the first begins
    assert t.diagnosis.steps.number.tolist() == [4, 5, 6]
    assert t.diagnosis.steps.whole.all()
    assert t.diagnosis.steps.led.all()
    assert t.diagnosis.meta.about["not seen"] == "everything real"


def test_recording_may_begin_with_the_first_step():
    t = run(FakeBackend(), step=0, steps=2)
    assert t.timeline.steps.number.tolist() == [0, 1]


def test_a_loop_that_ends_early_keeps_what_there_is():
    t = run(FakeBackend(), total=6, step=4, steps=10)
    assert t.timeline.steps.number.tolist() == [4, 5]


def test_a_loop_that_never_gets_there_is_told_so():
    t = run(FakeBackend(), total=3, step=200)
    with pytest.raises(BubblescopeError, match="made 3 steps and step 200 was asked for"):
        _ = t.timeline
    assert not t.done


def test_entering_again_keeps_what_was_recorded(tmp_path):
    backend = FakeBackend()
    t = bubblescope.trace(step=0, steps=2, backend=backend, save=tmp_path / "steps.bscope")
    for _ in range(2):
        with t:
            for _ in range(3):
                backend.work()
                t.step()
    assert backend.log == ["prepare", "start", "stop"]
    assert t.timeline.steps.number.tolist() == [0, 1]
    assert load(tmp_path / "steps.bscope") == t.timeline


def test_steps_after_the_last_are_free():
    backend = FakeBackend()
    with bubblescope.trace(step=1, steps=1, backend=backend) as t:
        for _ in range(9):
            backend.work()
            t.step()
    assert backend.log == ["prepare", "start", "stop"]
    assert t.timeline.steps.number.tolist() == [1]


def test_an_error_in_the_loop_passes_through_and_keeps_the_recording():
    backend = FakeBackend()
    t = bubblescope.trace(step=0, backend=backend)

    def loop():
        with t:
            backend.work()
            t.step()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    assert backend.log[-1] == "stop"
    assert t.timeline.steps.number.tolist() == [0]


def test_a_decorated_function_is_a_step_a_call(tmp_path):
    backend, path = FakeBackend(), tmp_path / "steps.bscope"

    @bubblescope.trace(step=3, steps=2, save=path, backend=backend)
    def decode(x):
        backend.work()
        return 2 * x

    assert [decode(n) for n in range(8)] == [0, 2, 4, 6, 8, 10, 12, 14]
    assert load(path) == decode.trace.timeline
    assert decode.trace.timeline.steps.number.tolist() == [3, 4]


def test_a_step_of_a_coroutine_is_all_of_it():
    backend = FakeBackend()
    step = bubblescope.trace(step=1, steps=2, backend=backend)

    @step
    async def decode(x):
        await asyncio.sleep(0)
        backend.work()
        return 2 * x

    async def loop():
        return [await decode(n) for n in range(5)]

    assert asyncio.iscoroutinefunction(decode)
    assert asyncio.run(loop()) == [0, 2, 4, 6, 8]
    assert decode.trace is step
    marks, ops = step.timeline.steps, step.timeline.device_ops
    assert marks.number.tolist() == [1, 2]
    last = ops.end[-2:]  # each step's own work lies inside its mark
    assert (marks.start <= last).all()
    assert (last <= marks.end).all()


def test_a_generator_is_refused_since_its_call_runs_nothing():
    def tokens():
        yield 1

    async def later():
        yield 1

    for function in (tokens, later):
        with pytest.raises(TypeError, match=f"{function.__name__}: .*call step\\(\\) in its loop"):
            bubblescope.trace()(function)


def test_a_decorated_loop_that_ends_early_is_saved(tmp_path):
    path = tmp_path / "steps.bscope"
    code = (
        "import sys, bubblescope; from tests.capture_fakes import FakeBackend\n"
        "backend = FakeBackend()\n"
        "@bubblescope.trace(step=3, steps=10, backend=backend, save=sys.argv[1])\n"
        "def decode(): backend.work()\n"
        "for _ in range(6): decode()\n"
    )
    words = [sys.executable, "-c", code, str(path)]
    root = Path(__file__).parents[1]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, cwd=root)
    assert (done.stdout, done.stderr) == ("", "")
    assert load(path).steps.number.tolist() == [3, 4, 5]


def test_a_loop_that_never_called_step_is_told_so():
    backend = FakeBackend()
    with bubblescope.trace(step=0, steps=2, backend=backend) as t:
        backend.work()
    assert len(t.timeline.device_ops) == 1
    with pytest.raises(
        BubblescopeError, match=r"no step ended .*: call step\(\) at the end of each"
    ):
        _ = t.diagnosis


def test_saving_never_overwrites(tmp_path):
    path = tmp_path / "a.bscope"
    path.write_bytes(b"mine")
    with pytest.raises(BubblescopeError, match="exists already"):
        bubblescope.trace(save=path)
    t = run(FakeBackend(), step=0, steps=2)
    with pytest.raises(BubblescopeError, match="exists already"):
        t.save(path)
    t.save(path, force=True)
    assert bscope.read(path) == t.timeline


@pytest.mark.parametrize("asked", [{"step": -1}, {"steps": 0}])
def test_nonsense_is_refused_at_once(asked):
    with pytest.raises(ValueError, match="or more"):
        bubblescope.trace(**asked)


def test_importing_bubblescope_imports_nothing_of_it():
    code = (
        "import bubblescope, sys;"
        "print([m for m in sys.modules if m.startswith(('numpy', 'torch'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bubblescope.nothing


def test_torch_profiler_says_what_it_recorded_where_there_is_no_device():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    from bubblescope.capture.torch_profiler import TorchProfilerBackend

    with bubblescope.trace(step=0, steps=2, backend=TorchProfilerBackend()) as t:
        for _ in range(3):
            torch.ones(100).add_(1)
            t.step()
    with pytest.raises(BubblescopeError, match=r"^torch.profiler's recording: CPU-only trace"):
        _ = t.diagnosis
