"""Children that crash, hang or chatter, as they really do."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from bubblescope.doctor import Machine, State, examine
from bubblescope.doctor.child import last_line, run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and groups are POSIX's")


def test_words_and_exit_code() -> None:
    done = run(["sh", "-c", "echo out; echo first >&2; echo last >&2; exit 3"], os.environ, 20)
    assert (done.code, done.out, done.error) == (3, "out\n", "")
    assert last_line(done) == "last"
    assert last_line(run(["false"], os.environ, 20)) == "exit code 1"


def test_a_crash() -> None:
    done = run(["sh", "-c", "kill -SEGV $$"], os.environ, 20)
    assert last_line(done) == "ended by SIGSEGV"


def test_not_there_and_not_a_program(tmp_path: Path) -> None:
    assert "No such file" in last_line(run([str(tmp_path / "no")], os.environ, 20))
    (tmp_path / "text").write_text("hello")
    assert "Permission denied" in last_line(run([str(tmp_path / "text")], os.environ, 20))


def test_a_hang_takes_its_children_along(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    began = time.monotonic()
    done = run(["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], os.environ, 0.5)
    assert time.monotonic() - began < 10
    assert last_line(done) == "no answer in 0.5 s"
    child = int(pid.read_text())
    for _ in range(200):
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.01)
    pytest.fail("the child of the child still runs")


def test_chatter_before_the_answer(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(
        "print('a library that likes to talk')\n"
        "class NVMLError(Exception): pass\n"
        "def nvmlInit(): raise NVMLError('Driver/library version mismatch')\n"
    )
    machine = Machine(env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert machine.ask("nvml", 20) == {"module": True, "reason": "Driver/library version mismatch"}


def test_a_file_of_the_working_folder_is_not_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise SystemExit('the wrong file')\n")
    monkeypatch.chdir(tmp_path)
    told = Machine(env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}).ask("nvml", 20)
    assert "wrong file" not in json.dumps(told)


def fake_torch(folder: Path, body: str) -> None:
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(body)
    (folder / "torch-2.13.0.dist-info").mkdir()
    (folder / "torch-2.13.0.dist-info/METADATA").write_text("Name: torch\nVersion: 2.13.0\n")


@pytest.mark.parametrize(
    ("body", "patience", "words"),
    [
        ("import os; os.kill(os.getpid(), 11)", 1.0, "importing it: ended by SIGSEGV"),
        ("raise RuntimeError('broken\\ninstall')", 1.0, "importing it: install"),
        ("import time; time.sleep(60)", 0.05, "importing it: no answer in 3 s"),
        ("print('hello')", 1.0, "importing it: AttributeError: module 'torch' has no attribute"),
    ],
    ids=["crashes", "raises", "hangs", "is something else"],
)
def test_a_torch_that(body: str, patience: float, words: str, tmp_path: Path) -> None:
    fake_torch(tmp_path, body)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = examine(Machine(env=env, packages=(str(tmp_path),), patience=patience))
    (torch,) = [c for c in found.checks if c.name == "torch"]
    assert torch.state is State.CANNOT
    assert torch.found.startswith(f"2.13.0, CPU build; {words}")
