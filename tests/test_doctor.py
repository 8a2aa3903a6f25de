"""What the doctor concludes on machines that are played for it."""

from __future__ import annotations

import json
import re
import threading
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from bubblescope.doctor import State, examine, needs
from bubblescope.doctor.child import Output
from bubblescope.doctor.examination import AREAS
from bubblescope.doctor.machine import older
from bubblescope.report.doctor import conclusion
from tests.doctor_machines import (
    CUDA,
    H200,
    NAMES,
    NVML,
    Programs,
    bare,
    checks,
    h200,
    package,
    program,
    said,
    with_env,
    write,
)

OK, MISSING, OLD, CANNOT = State.OK, State.MISSING, State.OLD, State.CANNOT


# The conclusion --------------------------------------------------------------------------------


def test_all_is_there(tmp_path: Path) -> None:
    found = examine(h200(tmp_path))
    assert {c.name: c.state for c in found.checks if c.state is not OK} == {}
    assert all(not c.why for c in found.checks)
    assert conclusion(found.captures) == (
        "can record: CUDA programs through CUPTI, PyTorch on CUDA through torch.profiler, "
        "the Ling loop on a CPU thread"
    )


def test_nothing_is_there(tmp_path: Path) -> None:
    found = examine(bare(tmp_path))
    states = {c.name: c.state for c in found.checks}
    there = {"bubblescope", "system", "subscriber", "nvtx-injection"}
    assert states == {name: OK if name in there else MISSING for name in NAMES}
    assert conclusion(found.captures) == (
        "can record: nothing here, only diagnose recordings from elsewhere; cannot: "
        "CUDA programs through CUPTI and PyTorch on CUDA through torch.profiler "
        "(no NVIDIA driver), the Ling loop on a CPU thread (no torch)"
    )
    # Without a GPU nobody is sent to install what only helps with one.
    assert {c.name: c.do for c in found.checks if c.do} == {
        "torch": "pip install --index-url https://download.pytorch.org/whl/cpu 'torch>=2.13'",
        "nvtx": "pip install 'nvtx>=0.2.16'",
    }


def test_a_laptop_with_torch(tmp_path: Path) -> None:
    package(tmp_path / "site", "torch", "2.13.0+cpu")
    told = {"version": "2.13.0+cpu", "cuda": None, "hip": None, "available": False, "devices": 0}
    machine = bare(tmp_path, run=Programs(cuda={"library": False}, nvml={}, torch_cuda=told))
    assert said(machine, "torch") == (OK, "2.13.0+cpu, CPU build, sees no GPU", "")
    assert conclusion(examine(machine).captures).startswith(
        "can record: the Ling loop on a CPU thread; cannot: CUDA programs"
    )


def test_the_least_versions_are_those_of_the_extras() -> None:
    told = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    extras = told["project"]["optional-dependencies"]
    wanted = [Requirement(r) for r in (*extras["gpu"], *extras["sglang"])]
    least = {r.name: next(iter(r.specifier)).version for r in wanted}
    assert {name: needs.PACKAGES[name] for name in least} == least
    assert f"torch>={needs.LING_TORCH}" in extras["ling"]
    assert not older(needs.PACKAGES["nvidia-cuda-cupti"], needs.CUPTI)


# Driver and devices ----------------------------------------------------------------------------


def test_a_driver_and_its_devices(tmp_path: Path) -> None:
    found = checks(h200(tmp_path))
    assert found["driver"].found == "580.159.04, CUDA 13.0"
    assert found["driver"].version == "580.159.04"
    assert found["gpu"].found == "NVIDIA H200, sm_90, 140.4 GiB"


def test_several_devices_and_who_is_on_them(tmp_path: Path) -> None:
    a100 = {"name": "A100", "capability": "8.0", "memory": 80 << 30}
    cuda = CUDA | {"devices": [H200, H200, a100]}
    nvml = NVML | {"devices": [H200 | {"processes": 2}, H200 | {"mig": True}, a100]}
    assert said(h200(tmp_path, cuda=cuda, nvml=nvml), "gpu") == (
        OK,
        "2 x NVIDIA H200, sm_90, 140.4 GiB; A100, sm_80, 80.0 GiB; "
        "2 other processes compute on it; MIG is on",
        "",
    )


def test_nvidia_smi_where_there_is_no_nvidia_ml_py(tmp_path: Path) -> None:
    program(tmp_path, "/bin/nvidia-smi")
    smi = Output(0, "570.86, NVIDIA H100 80GB HBM3, 9.0, 81559\n")
    machine = h200(tmp_path, nvml={"module": False}, **{"nvidia-smi": smi})
    state, found, do = said(machine, "driver")
    assert (state, found) == (OLD, "570.86, CUDA 13.0; CUPTI 13.4 needs 580 or later")
    assert do == "install driver 580 or later: https://www.nvidia.com/drivers"
    why = {c.name: (c.can, c.why) for c in examine(machine).captures}
    assert why["cupti"] == (False, "driver 570.86 is older than 580")
    assert why["torch-profiler"] == (True, "")


@pytest.mark.parametrize(
    ("result", "words", "do"),
    [
        (803, "libcuda and the kernel module differ", "reboot, or restart the container"),
        (802, "fabric", "sudo systemctl start nvidia-fabricmanager"),
        (100, "no device", "check nvidia-smi -L, and /dev/nvidia* in a container"),
        (42, "cuInit returned 42", "check dmesg for NVRM messages"),
    ],
)
def test_what_cuinit_returned(result: int, words: str, do: str, tmp_path: Path) -> None:
    found = checks(h200(tmp_path, cuda=CUDA | {"result": result, "devices": []}))
    driver = found["driver"]
    assert (driver.state, driver.do) == (CANNOT, do)
    assert words in driver.found
    assert words in driver.why
    assert (found["gpu"].state, found["gpu"].do) == (CANNOT, "")
    assert found["gpu"].found == "NVIDIA H200, sm_90, 140.4 GiB, but out of reach"


def test_hidden_devices(tmp_path: Path) -> None:
    machine = h200(tmp_path, cuda=CUDA | {"result": 100, "devices": []})
    assert said(with_env(machine, CUDA_VISIBLE_DEVICES=""), "gpu") == (
        CANNOT,
        "CUDA_VISIBLE_DEVICES is ''; hidden: NVIDIA H200, sm_90, 140.4 GiB",
        "unset CUDA_VISIBLE_DEVICES",
    )


def test_a_container_without_the_driver_s_libraries(tmp_path: Path) -> None:
    machine = h200(tmp_path, cuda={"library": False}, nvml={"module": False})
    assert said(machine, "driver")[1:] == (
        "kernel module 580.159.04, but no libcuda.so.1",
        "install the driver's libraries, of version 580.159.04",
    )
    write(tmp_path, "/.dockerenv")
    assert said(machine, "driver")[2] == (
        "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."
    )


def test_an_amd_gpu(tmp_path: Path) -> None:
    write(tmp_path, "/dev/kfd")
    state, found, do = said(bare(tmp_path), "driver")
    assert state is MISSING
    assert found.endswith("there is an AMD GPU")
    assert do == "record with torch.profiler, then: bubblescope diagnose FILE"


def test_a_gpu_that_cupti_does_not_see(tmp_path: Path) -> None:
    volta = {"name": "Tesla V100", "capability": "7.0", "memory": 16 << 30}
    state, found, _ = said(h200(tmp_path, cuda=CUDA | {"devices": [volta]}), "gpu")
    assert (state, found) == (
        CANNOT,
        "Tesla V100, sm_70, 16.0 GiB; CUPTI 13.4 sees sm_75 and later",
    )


def test_a_driver_that_hangs(tmp_path: Path) -> None:
    dead = Output(-1, error="no answer in 10 s")
    found = checks(h200(tmp_path, cuda=dead, nvml=dead))
    assert found["driver"].state is CANNOT
    assert found["driver"].found == "580.159.04; asking libcuda: no answer in 10 s"
    assert found["counters"].state is OK


# Probes that fail ------------------------------------------------------------------------------


def test_a_probe_that_crashes_is_a_line(tmp_path: Path) -> None:
    machine = h200(tmp_path, torch_cuda=RuntimeError("out\nof luck"))
    found = checks(machine)
    assert found["torch"].state is CANNOT
    assert found["torch"].found == "could not be looked at: RuntimeError: out of luck"
    assert {n for n, c in found.items() if c.state is not OK} == {"torch"}


def test_answers_of_the_wrong_shape(tmp_path: Path) -> None:
    for answer in ("[]", "{", "null", ""):
        machine = h200(tmp_path, torch_cuda=Output(0, answer))
        assert said(machine, "torch")[0] is CANNOT
    found = checks(h200(tmp_path, cuda=CUDA | {"devices": [{}]}))
    assert found["gpu"].found == "could not be looked at: KeyError: 'name'"
    assert found["cupti"].state is OK


@pytest.mark.parametrize("area", range(len(AREAS)))
def test_each_probe_and_each_judge_alone(
    area: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever fails, all other lines are as they were."""
    machine = h200(tmp_path)
    whole = checks(machine)

    def broken(*_: Any) -> Any:
        raise ValueError

    for part in ("probe", "judge"):
        with monkeypatch.context() as patch:
            hurt = [replace(a, **{part: broken}) if n == area else a for n, a in enumerate(AREAS)]
            patch.setattr("bubblescope.doctor.examination.AREAS", hurt)
            patch.setattr("bubblescope.doctor.examination.nvidia.AREA", hurt[1])
            found = checks(machine)
        lost = {name for name, _, _ in AREAS[area].stands_for}
        for name in NAMES:
            if name in lost:
                assert found[name].state is CANNOT
                assert found[name].found == "could not be looked at: ValueError"
            else:
                assert found[name].state is whole[name].state


def test_a_probe_that_hangs_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    hangs = replace(AREAS[-1], probe=lambda _machine: release.wait(30))
    monkeypatch.setattr("bubblescope.doctor.examination.AREAS", [*AREAS[:-1], hangs])
    began = time.monotonic()
    found = checks(replace(h200(tmp_path), patience=0.01))
    release.set()
    assert time.monotonic() - began < 10
    assert found["ncu"].found == "could not be looked at: looking at it took too long"
    assert found["torch"].state is OK


def test_every_command_is_one_line(tmp_path: Path) -> None:
    for machine in (bare(tmp_path), h200(tmp_path)):
        for check in examine(machine).checks:
            for text in (check.title, check.found, check.do, check.why):
                assert re.fullmatch(r"[^\n]*", text)
    assert json.dumps(NAMES)
