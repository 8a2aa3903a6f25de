"""The state of the GPUs at a moment, from NVML: clocks, throttling, other processes."""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from typing import Any, Self

_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


def state(uuids: dict[int, str]) -> dict[str, str]:
    """Words for `Meta.about` on the devices of this process; empty where NVML is not there.

    Args:
        uuids: UUID of each device by its index, as in "GPU-0a1b...".
    """
    if not uuids:
        return {}
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        devices = {i: pynvml.nvmlDeviceGetHandleByUUID(uuid) for i, uuid in uuids.items()}
        facts = {i: _facts(pynvml, handle) for i, handle in devices.items()}
        driver = str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()
    joined: dict[str, str] = {"driver": driver}
    for key in ("gpu clocks", "gpu throttled", "gpu other processes"):
        words = [f"{i}: {f[key]}" if len(facts) > 1 else f[key] for i, f in facts.items()]
        joined[key] = ", ".join(words)
    return joined


def _facts(pynvml: Any, handle: Any) -> dict[str, str]:
    sm = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
    most = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
    memory = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)
    reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    throttled = [word for bit, word in _REASONS.items() if reasons & bit]
    others = [
        p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()
    ]
    return {
        "gpu clocks": f"SM {sm} of {most} MHz, memory {memory} MHz",
        "gpu throttled": " and ".join(throttled) or "no",
        "gpu other processes": str(len(others)),
    }


class Watch:
    """Asks again and again what holds the clocks down; NVML stays open meanwhile.

    Args:
        uuids: of the devices, as for `state`.
    """

    def __init__(self, uuids: dict[int, str]) -> None:
        self._uuids = uuids
        self._nvml: Any = None
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        if not self._uuids:
            return self
        try:
            pynvml: Any = importlib.import_module("pynvml")
        except ImportError:
            return self
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return self
        self._nvml = pynvml
        with suppress(pynvml.NVMLError):
            self._handles = [pynvml.nvmlDeviceGetHandleByUUID(u) for u in self._uuids.values()]
        return self

    def __exit__(self, *_error: object) -> None:
        if self._nvml is not None:
            self._nvml.nvmlShutdown()

    def throttled(self) -> str | None:
        """The reasons in words, "" where there are none; None where that cannot be asked."""
        if not self._handles:
            return None
        try:
            bits = [self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(h) for h in self._handles]
        except self._nvml.NVMLError:
            return None
        return " and ".join(w for bit, w in _REASONS.items() if any(b & bit for b in bits))
