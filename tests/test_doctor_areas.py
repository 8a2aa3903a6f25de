"""What the doctor says of CUPTI, permissions, other profilers, packages and tools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bubblescope.doctor import Machine, State, examine
from bubblescope.doctor.child import Output
from tests.doctor_machines import (
    TORCH,
    Programs,
    checks,
    h200,
    package,
    program,
    said,
    with_env,
    write,
)

OK, MISSING, OLD, CANNOT = State.OK, State.MISSING, State.OLD, State.CANNOT

# CUPTI -----------------------------------------------------------------------------------------

INSTALL = "pip install --no-deps 'nvidia-cuda-cupti>=13.4.92'"


def toolkit(root: Path, name: str, number: int) -> Path:
    base = f"/usr/local/{name}/extras/CUPTI"
    write(root, f"{base}/include/cupti_version.h", f"#define CUPTI_API_VERSION {number}\n")
    return write(root, f"{base}/lib64/libcupti.so.13")


def without_package(root: Path, **answers: Any) -> Machine:
    machine = h200(root, cupti_python={}, **answers)
    (root / "site/nvidia/cu13/lib/libcupti.so.13").unlink()
    return machine


def test_the_library_of_the_package(tmp_path: Path) -> None:
    check = checks(h200(tmp_path))["cupti"]
    path = str(tmp_path / "site/nvidia/cu13/lib/libcupti.so.13")
    assert (check.state, check.found) == (OK, f"13.4.92, pip: {path}")
    assert (check.version, check.path) == ("13.4.92", path)


def test_no_library(tmp_path: Path) -> None:
    assert said(without_package(tmp_path), "cupti") == (MISSING, "no libcupti found", INSTALL)


def test_torch_s_older_library(tmp_path: Path) -> None:
    machine = h200(tmp_path, cupti_python={})
    (tmp_path / "site/nvidia_cuda_cupti-13.4.92.dist-info").rename(
        tmp_path / "site/nvidia_cuda_cupti-13.0.85.dist-info"
    )
    state, found, do = said(machine, "cupti")
    assert (state, do) == (OLD, INSTALL)
    assert found.startswith("13.0.85, older than 13.4, pip: ")
    assert {c.name: c.why for c in examine(machine).captures}["cupti"] == (
        "CUPTI 13.0.85 is older than 13.4"
    )
    # A newer one behind it is taken instead.
    newer = toolkit(tmp_path, "cuda-13.4", 130400)
    assert said(machine, "cupti") == (OK, f"13.4, CUDA toolkit: {newer}", "")


def test_the_newest_toolkit(tmp_path: Path) -> None:
    machine = without_package(tmp_path)
    toolkit(tmp_path, "cuda-13.9", 130900)
    newest = toolkit(tmp_path, "cuda-13.10", 131000)
    assert said(machine, "cupti") == (OK, f"13.10, CUDA toolkit: {newest}", "")


def test_where_nobody_looks(tmp_path: Path) -> None:
    machine = without_package(tmp_path)
    folder = tmp_path / "conda/lib"
    write(folder, "libcupti.so.13")
    write(tmp_path, "conda/include/cupti_version.h", "#define CUPTI_API_VERSION 130500\n")
    conda = with_env(machine, CONDA_PREFIX=str(tmp_path / "conda"))
    state, found, do = said(conda, "cupti")
    assert (state, do) == (CANNOT, f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH")
    assert found == f"13.5, but where nobody looks, conda: {folder}/libcupti.so.13"


def test_ld_library_path_and_a_name_with_a_date(tmp_path: Path) -> None:
    machine = with_env(without_package(tmp_path), LD_LIBRARY_PATH=":/lib/one:/lib/two")
    dated = write(tmp_path, "/lib/two/libcupti.so.2025.3.1")
    (tmp_path / "lib/two/libcupti.so.13").symlink_to(dated)
    state, found, _ = said(machine, "cupti")
    assert state is OLD
    assert found.startswith("13.0, older than 13.4, LD_LIBRARY_PATH: ")


def test_what_the_library_says_itself_counts(tmp_path: Path) -> None:
    machine = h200(tmp_path, cupti_python={"version": 130200})
    assert said(machine, "cupti")[0] is OLD
    broken = h200(tmp_path, cupti_python={"library": "libz.so: cannot open"})
    state, found, _ = said(broken, "cupti")
    assert state is CANNOT
    assert found.endswith("libcupti.so.13: libz.so: cannot open")


@pytest.mark.parametrize(
    ("version", "answer", "state", "found", "do"),
    [
        ("13.4.0", {}, OK, "13.4.0", ""),
        ("13.2.0", {}, OLD, "13.2.0; 13.4 or later is needed", "pip install -U '{}'"),
        (
            "13.4.0",
            {"package": "ImportError: no libcudart"},
            CANNOT,
            "13.4.0, but it cannot be imported: ImportError: no libcudart",
            "pip install --force-reinstall '{}'",
        ),
        (
            "13.4.0",
            Output(-11, error="ended by SIGSEGV"),
            CANNOT,
            "13.4.0, but it cannot be imported: ended by SIGSEGV",
            "pip install --force-reinstall '{}'",
        ),
    ],
)
def test_cupti_python(
    version: str, answer: Any, state: State, found: str, do: str, tmp_path: Path
) -> None:
    machine = h200(tmp_path, cupti_python=answer)
    (tmp_path / "site/cupti_python-13.4.0.dist-info").rename(tmp_path / "old")
    package(tmp_path / "site", "cupti-python", version)
    told = said(machine, "cupti-python")
    assert told == (state, found, do.format("cupti-python>=13.4"))


# Permissions -----------------------------------------------------------------------------------

OPEN = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | "
    "sudo tee /etc/modprobe.d/nvidia-counters.conf, then reboot"
)


@pytest.mark.parametrize(
    ("params", "effective", "container", "state", "words", "do"),
    [
        ("0", "0", "", OK, "open to all users", ""),
        ("1", "0", "", CANNOT, "has no CAP_SYS_ADMIN", OPEN),
        ("1", "0", "/.dockerenv", CANNOT, "no CAP", "docker run --cap-add=SYS_ADMIN ..."),
        ("1", "200000", "", OK, "this process is one (CAP_SYS_ADMIN)", ""),
        ("1", "4000000000", "", OK, "this process is one (CAP_PERFMON)", ""),
        (None, "0", "", CANNOT, "restriction not readable", OPEN),
    ],
)
def test_counters(
    params: str | None,
    effective: str,
    container: str,
    state: State,
    words: str,
    do: str,
    tmp_path: Path,
) -> None:
    machine = h200(tmp_path)
    write(tmp_path, "/proc/self/status", f"CapEff:\t{effective:0>16}\n")
    file = tmp_path / "proc/driver/nvidia/params"
    file.unlink()
    if params is not None:
        file.write_text(f"EnableMSI: 1\nRmProfilingAdminOnly: {params}\n")
    if container:
        write(tmp_path, container)
    told = said(machine, "counters")
    assert (told[0], told[2]) == (state, do)
    assert words in told[1]
    # Recording operations needs no permission.
    assert examine(machine).captures[0].can


def test_what_keeps_counters(tmp_path: Path) -> None:
    machine = h200(tmp_path)
    write(tmp_path, "/proc/77/comm", "nv-hostengine\n")
    assert said(machine, "counters")[2] == "dcgmi profile --pause, then ncu"
    write(tmp_path, "/proc/version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016")
    assert said(machine, "counters")[1] == "gVisor does not pass them on"
    assert said(machine, "system")[1].endswith(", in gVisor")


# Other profilers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "words", "do"),
    [
        ({"CUDA_INJECTION64_PATH": "/x/libToolsInjection64.so"}, "/x/lib", "unset CUDA_INJECTION"),
        ({"NSYS_PROFILING_SESSION_ID": "1"}, "Nsight Systems session", "run it without nsys"),
        ({"LD_PRELOAD": "/a/tcmalloc.so:/b/libcupti_hook.so"}, "/b/libcupti", "unset LD_PRELOAD"),
    ],
)
def test_another_profiler(env: dict[str, str], words: str, do: str, tmp_path: Path) -> None:
    machine = with_env(h200(tmp_path), **env)
    state, found, advice = said(machine, "subscriber")
    assert state is CANNOT
    assert words in found
    assert advice.startswith(do)
    can = {c.name: c.can for c in examine(machine).captures}
    assert can == {"cupti": False, "torch-profiler": False, "cpu": True}
    # What is injected here is kept out of the programs that are asked.
    assert isinstance(machine.run, Programs)
    assert not machine.run.env.keys() & {"CUDA_INJECTION64_PATH", "LD_PRELOAD"}


def test_a_profiler_that_this_runs_under(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 30)
    for process, parent, name in ((30, 20, "python"), (20, 10, "ncu"), (10, 1, "bash")):
        write(tmp_path, f"/proc/{process}/status", f"Name:\t{name}\nPPid:\t{parent}\n")
        write(tmp_path, f"/proc/{process}/comm", f"{name}\n")
    assert said(h200(tmp_path), "subscriber") == (
        CANNOT,
        "this runs under Nsight Compute (ncu, process 20), which holds CUPTI",
        "run it without ncu",
    )


def test_where_nvtx_ranges_go(tmp_path: Path) -> None:
    machine = h200(tmp_path)
    assert said(machine, "nvtx-injection")[:2] == (OK, "NVTX_INJECTION64_PATH is free")
    for there, name, state in (
        (False, "x", CANNOT),
        (True, "x", CANNOT),
        (True, "libcupti.so.13", OK),
    ):
        if there:
            write(tmp_path, f"/lib/{name}")
        played = with_env(machine, NVTX_INJECTION64_PATH=f"/lib/{name}")
        told = said(played, "nvtx-injection")
        assert told[0] is state
        assert f"/lib/{name}" in told[1]
        assert told[2] == ("" if state is OK else "unset NVTX_INJECTION64_PATH")


# torch and the rest ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "state", "found", "do"),
    [
        (TORCH, OK, "2.11.0+cu130, CUDA 13.0 build, sees 1 GPU", ""),
        (
            TORCH | {"version": "2.11.0+cpu", "cuda": None, "available": False},
            CANNOT,
            "2.11.0+cpu, CPU build: it cannot use the GPU",
            "pip install --force-reinstall --index-url https://download.pytorch.org/whl/cu130 "
            "'torch>=2.11'",
        ),
        (
            TORCH | {"available": False},
            CANNOT,
            "2.11.0+cu130, CUDA 13.0 build, sees no GPU",
            "python -c 'import torch; torch.cuda.init()' says why",
        ),
        (
            TORCH | {"version": "2.8.1"},
            OLD,
            "2.8.1, CUDA 13.0 build; 2.11 or later is needed",
            "pip install -U 'torch>=2.11'",
        ),
        (
            Output(1, err="Traceback\nImportError: libcudart.so.13: no such file\n"),
            CANNOT,
            "2.11.0, CUDA 12.8 build; importing it: ImportError: libcudart.so.13: no such file",
            "python -c 'import torch' shows all of it",
        ),
    ],
)
def test_torch(told: Any, state: State, found: str, do: str, tmp_path: Path) -> None:
    machine = h200(tmp_path, torch_cuda=told)
    text = "cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
    write(tmp_path, "site/torch/version.py", text)
    assert said(machine, "torch") == (state, found, do)


def test_packages(tmp_path: Path) -> None:
    machine = h200(tmp_path)
    found = checks(machine)
    assert (found["triton"].found, found["sglang"].found) == ("3.6.0", "0.5.23")
    (tmp_path / "site/sglang-0.5.23.dist-info").rename(tmp_path / "gone")
    (tmp_path / "site/triton-3.6.0.dist-info").rename(tmp_path / "gone too")
    package(tmp_path / "site", "triton", "3.2.0")
    assert said(machine, "sglang")[::2] == (MISSING, "pip install 'sglang>=0.5.23'")
    assert said(machine, "triton") == (
        OLD,
        "3.2.0; 3.6 or later is needed",
        "pip install -U 'triton>=3.6'",
    )


def test_an_older_ncu(tmp_path: Path) -> None:
    old = Output(0, "Version 2025.3.1.0 (build 36398880)\n")
    machine = h200(tmp_path, ncu=old)
    path = tmp_path / "bin/ncu"
    assert said(machine, "ncu") == (
        OLD,
        f"2025.3.1.0, {path}; nsight-python needs 2026.2.1",
        "apt-get install nsight-compute-2026.2.1",
    )


def test_a_newer_ncu_that_is_not_on_path(tmp_path: Path) -> None:
    machine = replace(h200(tmp_path), run=Machine().run)  # these programs really run
    program(tmp_path, "/bin/ncu", "echo Version 2025.3.1.0")
    newer = program(tmp_path, "/opt/nvidia/nsight-compute/2026.3.0/ncu", "echo Version 2026.3.0.0")
    from bubblescope.doctor import tools
    from bubblescope.doctor.area import Here

    (check,) = [c for c in tools.judge(tools.probe(machine), Here()) if c.name == "ncu"]
    assert (check.state, check.found) == (OK, f"2026.3.0.0, {newer}, not first on PATH")
    assert check.do == f"export PATH={newer.parent}:$PATH"


def test_a_tool_that_does_not_tell(tmp_path: Path) -> None:
    machine = h200(tmp_path, nsys=Output(1, err="no licence\n"))
    assert said(machine, "nsys")[:2] == (CANNOT, f"{tmp_path}/bin/nsys: no licence")
