"""Other profilers around this process: CUPTI serves one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bubblescope.doctor.area import Area, Here
from bubblescope.doctor.machine import Machine
from bubblescope.doctor.model import Check, State

_GROUP = "cupti"
_PROFILERS = {
    "nsys": "Nsight Systems",
    "nsys-launcher": "Nsight Systems",
    "ncu": "Nsight Compute",
    "nvprof": "nvprof",
    "compute-sanitizer": "Compute Sanitizer",
    "cuda-gdb": "cuda-gdb",
    "rocprofv3": "rocprof",
}
_PRELOADED = ("ToolsInjection", "nsys", "nsight", "InjectionProxy", "cupti")


@dataclass(frozen=True, slots=True)
class Facts:
    """injection, nvtx: what the two variables name. nvtx_there: whether that file is there.

    parent: a profiler that this runs under, as (program, process id). preloaded: a library of one.
    """

    injection: str = ""
    nvtx: str = ""
    nvtx_there: bool = False
    parent: tuple[str, int] | None = None
    preloaded: str = ""
    session: bool = False
    daemon: bool = False


def probe(machine: Machine) -> Facts:
    """Look at the environment and at the processes that this one runs under."""
    nvtx = machine.env.get("NVTX_INJECTION64_PATH", "")
    preloaded = [
        library
        for library in machine.env.get("LD_PRELOAD", "").replace(":", " ").split()
        if any(mark in library for mark in _PRELOADED)
    ]
    parents = [(name, process) for process, name in machine.parents() if name in _PROFILERS]
    return Facts(
        injection=machine.env.get("CUDA_INJECTION64_PATH", ""),
        nvtx=nvtx,
        nvtx_there=bool(nvtx) and machine.at(nvtx).exists(),
        parent=parents[0] if parents else None,
        preloaded=preloaded[0] if preloaded else "",
        session="NSYS_PROFILING_SESSION_ID" in machine.env,
        daemon=machine.env.get("KINETO_USE_DAEMON", "0") not in ("", "0"),
    )


def judge(facts: Facts, _here: Here) -> list[Check]:
    """Whether CUPTI is free, and where NVTX ranges go."""
    return [_subscriber(facts), _nvtx(facts)]


def _subscriber(facts: Facts) -> Check:
    def check(state: State, text: str, why: str = "", do: str = "") -> Check:
        return Check("subscriber", _GROUP, "other profilers", state, text, why, do)

    if facts.parent:
        program, process = facts.parent
        tool = _PROFILERS[program]
        return check(
            State.CANNOT,
            f"this runs under {tool} ({program}, process {process}), which holds CUPTI",
            f"{tool} holds CUPTI",
            f"run it without {program}",
        )
    if facts.session:
        return check(
            State.CANNOT,
            "this runs in an Nsight Systems session (NSYS_PROFILING_SESSION_ID), which holds CUPTI",
            "Nsight Systems holds CUPTI",
            "run it without nsys",
        )
    if facts.injection:
        return check(
            State.CANNOT,
            f"CUDA_INJECTION64_PATH loads {facts.injection} into each CUDA program",
            "CUDA_INJECTION64_PATH names another profiler",
            "unset CUDA_INJECTION64_PATH",
        )
    if facts.preloaded:
        return check(
            State.CANNOT,
            f"LD_PRELOAD loads {facts.preloaded}",
            "LD_PRELOAD loads another profiler",
            "unset LD_PRELOAD",
        )
    if facts.daemon:
        return check(
            State.OK,
            "KINETO_USE_DAEMON is set: torch takes CUPTI when its daemon asks",
            do="unset KINETO_USE_DAEMON",
        )
    return check(State.OK, "none around this process; CUPTI serves one at a time")


def _nvtx(facts: Facts) -> Check:
    def check(state: State, text: str, do: str = "") -> Check:
        why = text if state is not State.OK else ""
        return Check(
            "nvtx-injection", _GROUP, "NVTX injection", state, text, why, do, optional=True
        )

    if not facts.nvtx:
        return check(State.OK, "NVTX_INJECTION64_PATH is free")
    if not facts.nvtx_there:
        text = f"NVTX_INJECTION64_PATH names {facts.nvtx}, which is not there"
        return check(State.CANNOT, text, "unset NVTX_INJECTION64_PATH")
    if Path(facts.nvtx).name.startswith("libcupti"):
        return check(State.OK, f"NVTX_INJECTION64_PATH names {facts.nvtx}")
    return check(
        State.CANNOT,
        f"NVTX ranges go to {facts.nvtx}",
        "unset NVTX_INJECTION64_PATH",
    )


AREA = Area(
    probe,
    judge,
    (("subscriber", _GROUP, "other profilers"), ("nvtx-injection", _GROUP, "NVTX injection")),
)
