"""Packages of which only the version is asked: nothing is imported."""

from __future__ import annotations

from bubblescope.doctor import needs
from bubblescope.doctor.area import Area, Here
from bubblescope.doctor.machine import Machine, older
from bubblescope.doctor.model import Check, State

_GROUP = "python"
# What each is for.
_USES = {
    "triton": "kernels of passes",
    "nvtx": "naming steps in your own code",
    "nvidia-ml-py": "clocks and other processes of the GPU",
    "nsight-python": "counters of single kernels, with ncu",
    "sglang": "the engine itself",
}


def probe(machine: Machine) -> dict[str, str]:
    """Package -> version, "" where it is not installed."""
    return {name: machine.version(name) for name in _USES}


def judge(versions: dict[str, str], here: Here) -> list[Check]:
    """One line each; none of them is needed to record."""
    return [_check(name, version, here) for name, version in versions.items()]


def _check(name: str, version: str, here: Here) -> Check:
    least = needs.PACKAGES[name]

    def check(state: State, text: str, do: str = "") -> Check:
        why = text if state is not State.OK else ""
        return Check(name, _GROUP, name, state, text, why, do, optional=True, version=version)

    if not version:
        # Advice that does not help on this machine is none.
        do = needs.pip(name) if here.gpu is not False or name == "nvtx" else ""
        return check(State.MISSING, f"not installed; for {_USES[name]}", do)
    if older(version, least):
        return check(State.OLD, f"{version}; {least} or later is needed", needs.pip(name, "-U"))
    return check(State.OK, version)


AREA = Area(probe, judge, tuple((name, _GROUP, name) for name in _USES))
