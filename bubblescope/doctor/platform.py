"""The Python and the system that bubblescope runs on."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version

from bubblescope.doctor.area import Area, Here
from bubblescope.doctor.machine import Machine
from bubblescope.doctor.model import Check, State

_GROUP = "here"
# gVisor gives this date as its kernel's, whenever it was built.
_GVISOR = "Sun Jan 10 15:06:54 PST 2016"
_MARKS = (("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman"))


@dataclass(frozen=True, slots=True)
class Facts:
    """What runs where. container: its kind; "" where none was seen."""

    bubblescope: str
    python: str
    executable: str
    system: str
    architecture: str
    kernel: str
    cores: int
    container: str


def probe(machine: Machine) -> Facts:
    """Look."""
    return Facts(
        bubblescope=version("bubblescope"),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        executable=sys.executable,
        system=platform.system(),
        architecture=platform.machine(),
        kernel=platform.release(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        container=container(machine),
    )


def container(machine: Machine) -> str:
    """The kind of container or sandbox that this runs in, "" where none shows."""
    kernel = machine.text("/proc/version") or ""
    if _GVISOR in kernel:
        return "gVisor"
    if "KUBERNETES_SERVICE_HOST" in machine.env:
        return "Kubernetes"
    for mark, name in _MARKS:
        if machine.at(mark).exists():
            return name
    named = machine.env.get("container") or machine.env.get("APPTAINER_NAME")
    if named:
        return named
    return "WSL" if "microsoft" in kernel.lower() else ""


def judge(facts: Facts, _here: Here) -> list[Check]:
    """What it means."""
    where = f"{facts.system} {facts.kernel}, {facts.architecture}"
    if facts.cores:
        where += f", {facts.cores} core{'s' * (facts.cores != 1)}"
    if facts.container:
        where += f", in {facts.container}"
    linux = facts.system == "Linux"
    return [
        Check(
            "bubblescope",
            _GROUP,
            "bubblescope",
            State.OK,
            f"{facts.bubblescope}, {facts.python}",
            version=facts.bubblescope,
            path=facts.executable,
        ),
        Check(
            "system",
            _GROUP,
            "system",
            State.OK if linux else State.CANNOT,
            where,
            why="" if linux else f"CUPTI is not to be had on {facts.system}",
            do="" if linux else "record on the Linux machine with the GPU, diagnose the file here",
        ),
    ]


AREA = Area(probe, judge, (("bubblescope", _GROUP, "bubblescope"), ("system", _GROUP, "system")))
