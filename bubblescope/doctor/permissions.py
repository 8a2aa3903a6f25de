"""Who may read the GPU's counters. Recording operations needs no permission; ncu does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bubblescope.doctor import needs
from bubblescope.doctor.area import Area, Here
from bubblescope.doctor.machine import Machine, older
from bubblescope.doctor.model import Check, State
from bubblescope.doctor.platform import container

_GROUP = "nvidia"
_SYS_ADMIN, _PERFMON = 21, 38
_OPEN = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | "
    "sudo tee /etc/modprobe.d/nvidia-counters.conf, then reboot"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """restricted: None where the driver's parameters cannot be read. capabilities: a bit set."""

    restricted: bool | None
    capabilities: int
    container: str = ""
    dcgm: bool = False


def probe(machine: Machine) -> Facts:
    """Read the driver's parameters and this process's capabilities."""
    params = machine.text("/proc/driver/nvidia/params") or ""
    admin = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", params, re.M)
    effective = re.search(
        r"^CapEff:\s*([0-9a-fA-F]+)", machine.text("/proc/self/status") or "", re.M
    )
    names = (machine.text(f"/proc/{p.parent.name}/comm") for p in machine.glob("/proc/[0-9]*/comm"))
    return Facts(
        restricted=admin[1] != "0" if admin else None,
        capabilities=int(effective[1], 16) if effective else 0,
        container=container(machine),
        # The kernel keeps 15 characters of a name.
        dcgm=any((name or "").strip() == "nv-hostengine"[:15] for name in names),
    )


def judge(facts: Facts, here: Here) -> list[Check]:
    """Whether ncu would get its counters."""
    admin = bool(facts.capabilities >> _SYS_ADMIN & 1)
    monitor = bool(facts.capabilities >> _PERFMON & 1) and bool(here.driver)
    monitor = monitor and not older(here.driver, needs.PERFMON_DRIVER)
    held = "CAP_SYS_ADMIN" if admin else "CAP_PERFMON" if monitor else ""

    def check(state: State, text: str, do: str = "") -> list[Check]:
        why = text if state is not State.OK else ""
        return [Check("counters", _GROUP, "GPU counters", state, text, why, do, optional=True)]

    if here.gpu is False:
        return check(State.MISSING, "no GPU")
    if facts.container == "gVisor":
        return check(State.CANNOT, "gVisor does not pass them on", "run ncu outside the sandbox")
    if facts.dcgm:
        return check(
            State.CANNOT, "DCGM (nv-hostengine) may hold them", "dcgmi profile --pause, then ncu"
        )
    if facts.restricted is False:
        return check(State.OK, "open to all users")
    said = "restricted to administrators" if facts.restricted else "restriction not readable"
    if held:
        return check(
            State.OK, f"{said}; this process is one ({held})" if facts.restricted else held
        )
    inside = facts.container not in ("", "WSL")
    return check(
        State.CANNOT,
        f"{said}, and this process has no CAP_SYS_ADMIN",
        "docker run --cap-add=SYS_ADMIN ..." if inside else _OPEN,
    )


AREA = Area(probe, judge, (("counters", _GROUP, "GPU counters"),))
