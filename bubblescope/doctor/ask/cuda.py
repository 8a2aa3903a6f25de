"""Asks libcuda which devices there are. Makes no context and runs nothing on them."""

import ctypes
import json
from typing import Any

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


def answer() -> dict[str, Any]:
    """Whether the library is there, what cuInit returned, and the devices."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"library": False, "reason": str(error)}
    told: dict[str, Any] = {"library": True, "result": cuda.cuInit(0), "devices": []}
    number, version = ctypes.c_int(), ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        told["version"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if told["result"] or cuda.cuDeviceGetCount(ctypes.byref(number)):
        return told
    for index in range(number.value):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        memory, name = ctypes.c_size_t(), ctypes.create_string_buffer(128)
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, len(name), device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
        told["devices"].append(
            {
                "name": name.value.decode("utf-8", "replace"),
                "capability": f"{major.value}.{minor.value}",
                "memory": memory.value,
            }
        )
    return told


if __name__ == "__main__":
    print(json.dumps(answer()))
