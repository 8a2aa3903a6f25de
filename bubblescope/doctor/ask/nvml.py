"""Asks NVML, through nvidia-ml-py, for the driver, the devices and who else is on them."""

import contextlib
import importlib
import json
from typing import Any


def answer() -> dict[str, Any]:
    """The driver's version and the devices; {"module": False} without nvidia-ml-py."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return {"module": False}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"module": True, "reason": str(error)}
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        driver = nvml.nvmlSystemGetDriverVersion()
        devices = [_device(nvml, handle) for handle in handles]
        return {"module": True, "driver": _text(driver), "devices": devices}
    except nvml.NVMLError as error:
        return {"module": True, "reason": str(error)}
    finally:
        nvml.nvmlShutdown()


def _device(nvml: Any, handle: Any) -> dict[str, Any]:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    told: dict[str, Any] = {
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "capability": f"{major}.{minor}",
        "memory": nvml.nvmlDeviceGetMemoryInfo(handle).total,
    }
    # What a driver does not tell is left out.
    with contextlib.suppress(nvml.NVMLError):
        told["processes"] = len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    with contextlib.suppress(nvml.NVMLError):
        told["mig"] = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    return told


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


if __name__ == "__main__":
    print(json.dumps(answer()))
