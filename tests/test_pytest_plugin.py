"""The pytest plugin, as a project that installed bubblescope meets it: pytest in a subprocess."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.program import ENV

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "pytest_budget"
SCHEDULER = ROOT / "bubblescope" / "targets" / "ling" / "scheduler.py"
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}

# A project's own backend: every work() is a launch, a kernel and, if asked, a synchronise.
CONFTEST = """
import pytest
from tests.capture_fakes import FakeBackend

@pytest.fixture
def bubbles_backend():
    return FakeBackend()
"""


def run_pytest(folder: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *options, "."]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=ENV | {"PYTHONPATH": str(ROOT)} | env,
    )


@pytest.fixture
def project(tmp_path: Path):
    """Runs a test file in a project of its own, with the backend of CONFTEST or the default."""

    def run(tests: str, *options: str, backend: bool = True, **env: str):
        (tmp_path / "test_it.py").write_text(tests)
        if backend:
            (tmp_path / "conftest.py").write_text(CONFTEST)
        return run_pytest(tmp_path, *options, **env)

    return run


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """From pytest's last line: "2 failed, 2 passed in 1.23s"."""
    last = done.stdout.strip().splitlines()[-1]
    return {word: int(n) for n, word in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])}


# The example, on the embedded loop -------------------------------------------------------------


def line_of(text: str, after: str) -> int:
    """Number of the first line of the scheduler with `text`, after the one with `after`."""
    lines = SCHEDULER.read_text().splitlines()
    begin = next(n for n, line in enumerate(lines) if after in line)
    return next(n for n, line in enumerate(lines) if n > begin and text in line) + 1


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("torch", reason="the embedded loop needs torch")
    folder = tmp_path_factory.mktemp("example") / "budget"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return run_pytest(folder)


def test_within_the_budget_with_the_pass_and_over_it_without(example):
    assert outcomes(example) == {"failed": 2, "passed": 2}, example.stdout
    assert "PASSED test_decode.py::test_marked[seq-len-sync]" in example.stdout
    assert "PASSED test_decode.py::test_block[seq-len-sync]" in example.stdout


def test_a_failure_names_each_read_s_line_its_text_its_calls_and_its_idle(example):
    number = line_of("self._device.synchronize()", "def _read_length")
    for said, calls in (
        ("blocking reads a step: 2, at most 1", r"1\.0 calls a step, blocked .* us a step, idle "),
        ("blocking reads in all: 6, at most 3", r"3\.0 calls in all, blocked .* in all, idle "),
    ):
        text = example.stdout[example.stdout.index(said) :].splitlines()
        assert text[1] == f"  {SCHEDULER}:{number} in Scheduler._read_length"
        assert text[2] == "    self._device.synchronize()"
        assert re.match(rf"    cpuStreamSynchronize: {calls}[\d,.<]+ us", text[3]), text[3]
    other = line_of("self._device.synchronize_event", "def _take_results")
    assert f"  {SCHEDULER}:{other} in Scheduler._take_results\n" in example.stdout


# A backend of the project's own ----------------------------------------------------------------

LOOPS = """
import pytest

@pytest.mark.bubbles(max_step="10s", max_launches=1)
def test_steps(bubbles_backend, bubbles):
    for _ in range(6):
        bubbles_backend.work()
        bubbles.step()

@pytest.mark.bubbles(max_launches=2)
def test_one_step_of_three_launches(bubbles_backend):
    for _ in range(3):
        bubbles_backend.work()

def test_block(bubbles_backend, bubbles):
    with bubbles(max_launches=1, warmup=3, steps=2) as block:
        for _ in range(8):
            bubbles_backend.work()
            block.step()

def test_work_after_the_last_step_is_none(bubbles_backend, bubbles):
    with bubbles(max_launches=1):
        for _ in range(4):
            bubbles_backend.work()
            bubbles.step()
        for _ in range(9):
            bubbles_backend.work()

@pytest.mark.bubbles(max_launches=9)
def test_own_error(bubbles_backend):
    bubbles_backend.work()
    raise ZeroDivisionError

def test_two_blocks(bubbles_backend, bubbles):
    for most in (1, 2):
        with bubbles(max_launches=most):
            bubbles_backend.rows.clear()
            bubbles_backend.work()
            bubbles_backend.work()

class TestMethods:
    @pytest.mark.bubbles(max_launches=0)
    def test_method(self, bubbles_backend):
        bubbles_backend.work()
"""


def test_steps_blocks_and_marks(project):
    done = project(LOOPS)
    assert outcomes(done) == {"failed": 4, "passed": 3}, done.stdout
    for name in ("test_steps", "test_block", "test_work_after_the_last_step_is_none"):
        assert f"PASSED test_it.py::{name}" in done.stdout
    assert "launches a step: 3, at most 2" in done.stdout
    assert "ZeroDivisionError" in done.stdout
    assert "launches a step: 2, at most 1" in done.stdout  # the first of two blocks
    assert "launches a step: 1, at most 0" in done.stdout


MISTAKES = """
import unittest
import pytest

@pytest.mark.bubbles
def test_no_budget(): pass

@pytest.mark.bubbles(0)
def test_no_name(): pass

@pytest.mark.bubbles(max_read=0)
def test_no_such_limit(): pass

@pytest.mark.bubbles(max_idle="5")
def test_no_unit(): pass

@pytest.mark.bubbles(max_reads=0)
def test_no_work(): pass

@pytest.mark.bubbles(max_reads=0, warmup=5)
def test_too_few_steps(bubbles_backend, bubbles):
    for _ in range(5):
        bubbles_backend.work()
        bubbles.step()

@pytest.mark.bubbles(max_launches=1)
def test_recorded_already(bubbles):
    with bubbles(max_launches=1): pass

@pytest.mark.bubbles(max_launches=1, warmup=-1)
def test_nonsense(): pass

@pytest.mark.bubbles(max_launches=1, warmup="3")
def test_text(): pass

@pytest.mark.bubbles(max_launches=1, steps=2.5)
def test_half_a_step(): pass

def test_made_before_and_entered_twice(bubbles):
    one, other = bubbles(max_launches=1), bubbles(max_launches=2)
    with one, other: pass

def test_outside(bubbles):
    bubbles.step()

class TestCase(unittest.TestCase):
    @pytest.mark.bubbles(max_reads=0)
    def test_case(self): pass
"""


def test_what_is_not_checked_fails(project):
    done = project(MISTAKES)
    assert outcomes(done) == {"failed": 13}, done.stdout
    for said in (
        "bubbles: nothing to check; give a budget: max_reads=0,",
        "the marker bubbles takes names: max_reads=0,",
        "bubbles: no limit is called max_read; a budget is max_reads=0,",
        "bubbles: warmup and steps are whole numbers, not '3'",
        "bubbles: warmup and steps are whole numbers, not 2.5",
        "bubbles: '5' is not a time; write it with its unit, as in 300us",
        "no device operation in it",
        "bubbles: nothing was checked: the test made 5 steps and 5 of them were to warm up",
        "bubbles: this test is recorded already",
        "bubbles: warmup must be 0 or more, steps 1 or more",
        "bubbles.step() outside of a block and of a marked test",
    ):
        assert said in done.stdout, said
    # One line each, without the plugin's own code.
    assert "pytest_plugin.py" not in done.stdout
    assert "During handling" not in done.stdout


CANNOT = """
import pytest
from bubblescope.errors import BubblescopeError
from tests.capture_fakes import FakeBackend

class Held(FakeBackend):
    def start(self):
        raise BubblescopeError("CUPTI is held by another profiler; stop it")

@pytest.fixture
def bubbles_backend():
    return Held()

@pytest.mark.bubbles(max_reads=0)
def test_at_once():
    pass

def test_after_steps_to_warm_up(bubbles):
    with bubbles(max_reads=0, warmup=4):
        for _ in range(8):
            bubbles.step()
"""


def test_a_recorder_that_cannot_start_is_one_line(project):
    done = project(CANNOT, backend=False)
    assert outcomes(done) == {"failed": 2}, done.stdout
    said = "bubbles: nothing was recorded: CUPTI is held by another profiler; stop it"
    assert done.stdout.count(f"\n{said}\n") == 2, done.stdout
    assert "pytest_plugin.py" not in done.stdout


# Without a GPU, and unused ---------------------------------------------------------------------

PLAIN = """
import pytest

@pytest.mark.bubbles(max_reads=0)
def test_marked(): pass

def test_fixture(bubbles): pass

def test_other(): pass
"""


def test_without_a_device_it_skips_and_says_why(project):
    done = project(PLAIN, "--strict-markers", backend=False, **NO_GPU)
    assert outcomes(done) == {"passed": 1, "skipped": 2}, done.stdout
    assert re.search(r"SKIPPED \[\d\] \S+: no CUDA device: \S+", done.stdout)


UNUSED = """
import json, sys

def test_other():
    heavy = ("numpy", "torch", "rich", "bubblescope.check", "bubblescope.tracing")
    print("LOADED", json.dumps(["bubblescope.pytest_plugin" in sys.modules,
                                [m for m in heavy if m in sys.modules]]))
"""


def test_unused_it_imports_nothing(project):
    done = project(UNUSED, backend=False)
    assert json.loads(done.stdout.partition("LOADED ")[2].splitlines()[0]) == [True, []]


def test_it_is_told_of_in_the_list_of_markers(project):
    done = project("", "--markers", backend=False)
    assert "@pytest.mark.bubbles(max_reads=N, max_idle='5%', ...): record what" in done.stdout


# On a GPU --------------------------------------------------------------------------------------

CUDA = """
import pytest
import torch

@pytest.mark.bubbles(max_reads=0)
def test_no_read():
    x = torch.ones(1000, device="cuda")
    for _ in range(20):
        x.mul_(1.01)

@pytest.mark.bubbles(max_reads=0)
def test_read():
    x = torch.ones(1000, device="cuda")
    x.mul_(2).sum().item()
"""


@pytest.mark.gpu
def test_on_cuda(project):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    done = project(CUDA, backend=False)
    assert outcomes(done) == {"failed": 1, "passed": 1}, done.stdout
    assert re.search(r"test_it\.py:14 in test_read\n +x\.mul_\(2\)\.sum\(\)\.item\(\)", done.stdout)
