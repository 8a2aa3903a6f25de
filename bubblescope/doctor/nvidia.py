"""The NVIDIA driver and its devices."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bubblescope.doctor import child, needs
from bubblescope.doctor.area import Area, Here
from bubblescope.doctor.machine import Machine, older
from bubblescope.doctor.model import Check, State

_GROUP = "nvidia"
_TIMEOUT_S = 10.0
_SMI = ("--query-gpu=driver_version,name,compute_cap,memory.total", "--format=csv,noheader,nounits")
_IN_CONTAINER = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."
# What cuInit returns, and what helps.
_RESULTS = {
    3: ("CUDA is not initialised", "check dmesg for NVRM messages; reload the driver or reboot"),
    100: ("no device that CUDA may use", "check nvidia-smi -L, and /dev/nvidia* in a container"),
    101: ("CUDA_VISIBLE_DEVICES names no device", "unset CUDA_VISIBLE_DEVICES"),
    802: ("the NVSwitch fabric is not ready", "sudo systemctl start nvidia-fabricmanager"),
    803: ("libcuda and the kernel module differ in version", "reboot, or restart the container"),
    804: ("this CUDA compatibility package does not fit the device", "unset LD_LIBRARY_PATH"),
    999: ("an unknown error", "check dmesg for NVRM messages; reload the driver or reboot"),
}


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. memory: bytes. processes: those that compute on it, None where not told."""

    name: str
    capability: str = ""
    memory: int = 0
    processes: int | None = None
    mig: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What the driver says.

    module: the kernel module's version, "" where none is loaded. driver: the version that NVML or
    nvidia-smi gave. cuda: libcuda's answer (ask/cuda.py). devices: as NVML sees them. errors: what
    went wrong with NVML and nvidia-smi.
    """

    module: str = ""
    driver: str = ""
    cuda: dict[str, Any] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    errors: tuple[str, ...] = ()
    amd: bool = False
    visible: str | None = None
    container: bool = False


def probe(machine: Machine) -> Facts:
    """Ask the kernel, libcuda, and NVML or else nvidia-smi."""
    from bubblescope.doctor.platform import container

    loaded = re.search(
        r"\b(\d{3,}\.\d+(\.\d+)?)\b", machine.text("/proc/driver/nvidia/version") or ""
    )
    cuda = machine.ask("cuda", _TIMEOUT_S)
    driver, devices, errors = _nvml(machine)
    return Facts(
        module=loaded[1] if loaded else "",
        driver=driver,
        cuda=cuda,
        devices=devices,
        errors=errors,
        amd=machine.at("/dev/kfd").exists(),
        visible=machine.env.get("CUDA_VISIBLE_DEVICES"),
        container=container(machine) not in ("", "WSL"),
    )


def _nvml(machine: Machine) -> tuple[str, tuple[Device, ...], tuple[str, ...]]:
    """(driver, devices, errors), from nvidia-ml-py, or from nvidia-smi where that fails."""
    errors: list[str] = []
    told = machine.ask("nvml", _TIMEOUT_S)
    if "driver" in told:
        devices = tuple(
            Device(
                str(d["name"]),
                str(d["capability"]),
                int(d["memory"]),
                d.get("processes"),
                bool(d.get("mig")),
            )
            for d in told["devices"]
        )
        return str(told["driver"]), devices, ()
    for key in ("error", "reason"):
        if key in told:
            errors.append(f"NVML: {told[key]}")
    program = machine.which("nvidia-smi")
    if program is None:
        return "", (), tuple(errors)
    output = machine.command([program, *_SMI], _TIMEOUT_S)
    if output.error or output.code:
        return "", (), (*errors, f"nvidia-smi: {child.last_line(output)}")
    rows = [[cell.strip() for cell in line.split(",")] for line in output.out.splitlines()]
    rows = [row for row in rows if len(row) == 4]
    devices = tuple(
        Device(name, capability, int(memory) << 20 if memory.isdigit() else 0)
        for _, name, capability, memory in rows
    )
    return rows[0][0] if rows else "", devices, tuple(errors)


def judge(facts: Facts, _here: Here) -> list[Check]:
    """The driver and the devices."""
    driver = _driver(facts)
    return [driver, _gpu(facts, driver)]


def usable(checks: list[Check]) -> bool | None:
    """Whether programs can run on a GPU here; None where one may be there, but out of order."""
    states = {check.name: check.state for check in checks}
    if State.CANNOT in states.values():
        return None
    # A driver too old for CUPTI still runs programs.
    return State.MISSING not in states.values()


def _version(facts: Facts) -> str:
    """The driver's version, from whoever gave it."""
    return facts.driver or facts.module


def _driver(facts: Facts) -> Check:
    found, said = _version(facts), "; ".join(facts.errors)

    def check(state: State, text: str, why: str = "", do: str = "") -> Check:
        return Check("driver", _GROUP, "NVIDIA driver", state, text, why, do, version=found)

    if "error" in facts.cuda:
        error = facts.cuda["error"]
        return check(
            State.CANNOT,
            f"{found or 'version not known'}; asking libcuda: {error}",
            "the NVIDIA driver does not answer",
            "check dmesg for NVRM messages; reload the driver or reboot",
        )
    if not facts.cuda.get("library"):
        if facts.module:
            return check(
                State.CANNOT,
                f"kernel module {facts.module}, but no libcuda.so.1",
                "no libcuda.so.1",
                _IN_CONTAINER
                if facts.container
                else f"install the driver's libraries, of version {facts.module}",
            )
        other = "; there is an AMD GPU" if facts.amd else ""
        if facts.amd:
            do = "record with torch.profiler, then: bubblescope diagnose FILE"
        elif facts.container:
            do = "docker run --gpus all ..., if the host has a GPU"
        else:
            do = ""
        return check(
            State.MISSING,
            f"no kernel module and no libcuda.so.1{other}" + (f"; {said}" if said else ""),
            "no NVIDIA driver",
            do,
        )
    result = int(facts.cuda.get("result", 0))
    if result and not (result == 100 and facts.visible is not None):
        text, do = _RESULTS.get(result, ("", "check dmesg for NVRM messages"))
        why = text or f"cuInit returned {result}"
        number = f"cuInit returned {result}" + (f": {text}" if text else "")
        return check(State.CANNOT, f"{found}; {number}".lstrip("; "), why, do)
    text = (found or "version not known") + (
        f", CUDA {facts.cuda['version']}" if "version" in facts.cuda else ""
    )
    if found and older(found, needs.DRIVER):
        return check(
            State.OLD,
            f"{text}; CUPTI {needs.CUPTI} needs {needs.DRIVER} or later",
            f"driver {found} is older than {needs.DRIVER}",
            f"install driver {needs.DRIVER} or later: https://www.nvidia.com/drivers",
        )
    return check(State.OK, text)


def _gpu(facts: Facts, driver: Check) -> Check:
    """What CUDA sees; NVML knows more about it, but sees hidden devices too."""

    def check(state: State, text: str, why: str = "", do: str = "") -> Check:
        return Check("gpu", _GROUP, "GPU", state, text, why, do)

    if driver.state not in (State.OK, State.OLD):
        there = f"{_named(facts.devices)}, but out of reach" if facts.devices else "none"
        return check(State.CANNOT if facts.devices else State.MISSING, there, driver.why)
    seen = tuple(
        Device(str(d["name"]), str(d["capability"]), int(d["memory"]))
        for d in facts.cuda.get("devices", ())
    )
    if not seen:
        if facts.visible is not None:
            hidden = f"; hidden: {_named(facts.devices)}" if facts.devices else ""
            return check(
                State.CANNOT,
                f"CUDA_VISIBLE_DEVICES is {facts.visible!r}{hidden}",
                "CUDA_VISIBLE_DEVICES hides every GPU",
                "unset CUDA_VISIBLE_DEVICES",
            )
        return check(State.MISSING, "none", "no GPU", "check nvidia-smi -L")
    text = _named(seen)
    old = [d for d in seen if older(d.capability, needs.CAPABILITY)]
    if len(old) == len(seen):
        least = needs.CAPABILITY.replace(".", "")
        why = f"CUPTI {needs.CUPTI} sees sm_{least} and later"
        return check(State.CANNOT, f"{text}; {why}", why, "record with torch.profiler of CUDA 12")
    if len(facts.devices) > len(seen):
        text += f"; {len(facts.devices) - len(seen)} more hidden by CUDA_VISIBLE_DEVICES"
    elif sum(d.processes or 0 for d in facts.devices):
        number = sum(d.processes or 0 for d in facts.devices)
        text += f"; {number} other process{'es' * (number != 1)} compute{'s' * (number == 1)} on it"
    if any(d.mig for d in facts.devices):
        text += "; MIG is on"
    return check(State.OK, text)


def _named(devices: tuple[Device, ...]) -> str:
    """As in "8 x NVIDIA H200, sm_90, 139.8 GiB"."""
    kinds = Counter((d.name, d.capability, d.memory) for d in devices)
    said = []
    for (name, capability, memory), number in kinds.items():
        text = f"{number} x {name}" if number > 1 else name
        if capability:
            text += f", sm_{capability.replace('.', '')}"
        if memory:
            text += f", {memory / (1 << 30):.1f} GiB"
        said.append(text)
    return "; ".join(said)


AREA = Area(probe, judge, (("driver", _GROUP, "NVIDIA driver"), ("gpu", _GROUP, "GPU")))
