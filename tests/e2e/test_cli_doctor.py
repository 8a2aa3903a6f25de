"""`bubblescope doctor` as a user runs it, on whatever machine the tests run on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.program import ENV


def doctor(*options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-m", "bubblescope", "doctor", *options]
    return subprocess.run(
        words, capture_output=True, timeout=120, check=False, env=ENV | (env or {})
    )


def test_text() -> None:
    done = doctor()
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.startswith("can record: ")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 45
    assert "\x1b" not in text
    for title in ("bubblescope", "NVIDIA driver", "CUPTI library", "torch", "Nsight Compute"):
        assert sum(line.startswith(title) for line in lines) == 1


def test_json_says_the_same() -> None:
    done = doctor("--json")
    assert (done.returncode, done.stderr) == (0, b"")
    told = json.loads(done.stdout)
    assert told["version"] == 1
    assert doctor().stdout.decode().replace("\n", " ").startswith(told["conclusion"])
    assert {c["state"] for c in told["checks"]} <= {"ok", "missing", "too old", "cannot"}
    assert [c["name"] for c in told["captures"]] == ["cupti", "torch-profiler", "cpu"]


@pytest.mark.skipif(os.name != "posix", reason="the program that plays is a shell script")
def test_a_broken_machine(tmp_path: Path) -> None:
    """Programs crash or chatter, packages abort at import: exit 0 all the same."""
    for name, body in (("nvidia-smi", "kill -SEGV $$"), ("ncu", "echo; echo nonsense; exit 9")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    for module in ("pynvml", "torch", "cupti"):
        (tmp_path / f"{module}.py").write_text("import os; os.abort()\n")
    for package in ("torch-2.13.0", "cupti_python-13.4.0"):
        name, version = package.split("-")
        folder = tmp_path / f"{package}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    env = {"PATH": f"{tmp_path}:{ENV['PATH']}", "PYTHONPATH": str(tmp_path)}
    done = doctor("--json", env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    found = {c["name"]: c for c in json.loads(done.stdout)["checks"]}
    assert found["torch"]["found"].endswith("importing it: ended by SIGABRT")
    assert found["cupti-python"]["found"].endswith("cannot be imported: ended by SIGABRT")
    assert found["ncu"]["found"] == f"{tmp_path}/ncu: nonsense"
    assert found["ncu"]["state"] == "cannot"


def test_under_another_profiler() -> None:
    done = doctor("--json", env={"CUDA_INJECTION64_PATH": "/opt/x/libToolsInjection64.so"})
    told = json.loads(done.stdout)
    (check,) = [c for c in told["checks"] if c["name"] == "subscriber"]
    assert (check["state"], check["do"]) == ("cannot", "unset CUDA_INJECTION64_PATH")
    assert not any(c["can"] for c in told["captures"] if c["name"] != "cpu")


def test_help_names_it() -> None:
    done = doctor("--help")
    assert done.returncode == 0
    assert b"--json" in done.stdout
