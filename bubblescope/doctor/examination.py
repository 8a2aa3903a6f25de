"""Runs every probe apart from the others, so that one that crashes or hangs is one line."""

from __future__ import annotations

import threading
import time
from typing import Any

from bubblescope.doctor import (
    cupti,
    nvidia,
    others,
    packages,
    permissions,
    platform,
    tools,
    torch,
)
from bubblescope.doctor.area import Area, Here
from bubblescope.doctor.captures import captures
from bubblescope.doctor.machine import Machine
from bubblescope.doctor.model import Check, Examination, State

AREAS: list[Area[Any]] = [
    platform.AREA,
    nvidia.AREA,
    permissions.AREA,
    cupti.AREA,
    others.AREA,
    torch.AREA,
    packages.AREA,
    tools.AREA,
]
"""In the order in which they are told."""

_TIMEOUT_S = 75.0  # over the longest that a probe gives its children


class _Probe:
    """A probe under way in a thread that dies with the process."""

    def __init__(self, area: Area[Any], machine: Machine) -> None:
        self._area, self._machine = area, machine
        self.facts: Any = None
        self.error = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.facts = self._area.probe(self._machine)
        except BaseException as error:
            self.error = _words(error)

    def wait(self, until: float) -> None:
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self.error = "looking at it took too long"


def examine(machine: Machine | None = None) -> Examination:
    """Look at the machine: at most some 75 s, most often as long as an import of torch takes."""
    machine = machine or Machine()
    until = time.monotonic() + _TIMEOUT_S * machine.patience
    probes = [_Probe(area, machine) for area in AREAS]
    for probe in probes:
        probe.wait(until)
    here = Here()
    checks: list[Check] = []
    # The GPU is judged first: what others advise depends on it.
    for area, probe in sorted(
        zip(AREAS, probes, strict=True), key=lambda pair: pair[0] is not nvidia.AREA
    ):
        told = _judged(area, probe, here)
        if area is nvidia.AREA:
            driver = next(check.version for check in told if check.name == "driver")
            here = Here(nvidia.usable(told), driver)
        checks += told
    order = [name for area in AREAS for name, _, _ in area.stands_for]
    checks.sort(key=lambda check: order.index(check.name))
    return Examination(captures(checks), tuple(checks))


def _judged(area: Area[Any], probe: _Probe, here: Here) -> list[Check]:
    """The area's checks; where it failed, the same lines, saying so."""
    error = probe.error
    if not error:
        try:
            return area.judge(probe.facts, here)
        except Exception as failed:
            error = _words(failed)
    return [
        Check(
            name,
            group,
            title,
            State.CANNOT,
            f"could not be looked at: {error}",
            f"{title}: {error}",
            "please report this: the other lines stand",
        )
        for name, group, title in area.stands_for
    ]


def _words(error: BaseException) -> str:
    """An error as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
