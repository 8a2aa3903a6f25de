"""Machines for the doctor to look at: files in a folder, programs that play a part."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bubblescope.doctor import Check, Machine, State, examine
from bubblescope.doctor.child import Output

H200 = {"name": "NVIDIA H200", "capability": "9.0", "memory": 150_754_820_096}
CUDA = {"library": True, "result": 0, "version": "13.0", "devices": [H200]}
NVML = {
    "module": True,
    "driver": "580.159.04",
    "devices": [H200 | {"processes": 0, "mig": False}],
}
TORCH = {"version": "2.11.0+cu130", "cuda": "13.0", "hip": None, "available": True, "devices": 1}


NAMES = [
    *("bubblescope", "system", "driver", "gpu", "counters", "cupti", "cupti-python"),
    *("subscriber", "nvtx-injection", "torch", "triton", "nvtx", "nvidia-ml-py"),
    *("nsight-python", "sglang", "nsys", "ncu"),
]


class Programs:
    """Answers in place of programs: by a script's or a program's name; others are not there."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []
        self.env: Mapping[str, str] = {}

    def __call__(
        self, arguments: Sequence[str], env: Mapping[str, str], _timeout_s: float
    ) -> Output:
        script = arguments[0] == sys.executable
        name = Path(arguments[2] if script else arguments[0]).stem
        self.asked.append([name, *arguments[3 if script else 1 :]])
        self.env = env
        answer = self.answers.get(name, Output(-1, error="could not be started: No such file"))
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Output) else Output(0, json.dumps(answer) + "\n")


def write(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def program(root: Path, path: str, body: str = "") -> Path:
    file = write(root, path, f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def package(site: Path, name: str, version: str) -> None:
    """An installed package, as its metadata shows it."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    write(site, f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def bare(root: Path, **more: Any) -> Machine:
    """A machine with nothing on it."""
    settings: dict[str, Any] = {
        "root": root,
        "env": {"PATH": str(root / "bin")},
        "packages": (str(root / "site"),),
        "run": Programs(cuda={"library": False}, nvml={"module": False}),
    }
    return Machine(**settings | more)


def h200(root: Path, **answers: Any) -> Machine:
    """All that recording needs, with one H200."""
    site = root / "site"
    write(root, "/proc/driver/nvidia/version", "NVRM version: NVIDIA  580.159.04  Release\n")
    write(root, "/proc/driver/nvidia/params", "ResmanDebugLevel: 4\nRmProfilingAdminOnly: 1\n")
    write(root, "/proc/self/status", "Name:\tpython\nCapEff:\t000001ffffffffff\n")
    write(site, "nvidia/cu13/lib/libcupti.so.13")
    for name, version in (
        ("cupti-python", "13.4.0"),
        ("nvidia-cuda-cupti", "13.4.92"),
        ("torch", "2.11.0"),
        ("triton", "3.6.0"),
        ("nvtx", "0.2.16"),
        ("nvidia-ml-py", "13.615.71"),
        ("nsight-python", "1.1.0"),
        ("sglang", "0.5.23"),
    ):
        package(site, name, version)
    program(root, "/bin/nsys")
    program(root, "/bin/ncu")
    played = {
        "cuda": CUDA,
        "nvml": NVML,
        "cupti_python": {"version": 130400},
        "torch_cuda": TORCH,
        "nsys": Output(0, "NVIDIA Nsight Systems version 2026.2.1.55-261v0\n"),
        "ncu": Output(0, "NVIDIA (R) Nsight Compute\nVersion 2026.2.1.0 (build 1)\n"),
    }
    return bare(root, run=Programs(**played | answers))


def checks(machine: Machine) -> dict[str, Check]:
    found = examine(machine).checks
    assert [c.name for c in found] == NAMES
    return {c.name: c for c in found}


def said(machine: Machine, name: str) -> tuple[State, str, str]:
    check = checks(machine)[name]
    return check.state, check.found, check.do


def with_env(machine: Machine, **more: str) -> Machine:
    return replace(machine, env={**machine.env, **more})
