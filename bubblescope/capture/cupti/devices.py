"""The CUDA devices of this process, asked of the driver."""

from __future__ import annotations

import ctypes

from bubblescope.timeline import Device

_MULTIPROCESSORS = 16


def find(rank: int = 0) -> tuple[tuple[Device, ...], dict[int, str]]:
    """Every device that the process sees, and the UUID of each by its index; none before cuInit."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return (), {}
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)):
        return (), {}
    found, uuids = [], {}
    for index in range(count.value):
        handle, memory, units = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_int()
        name, uuid = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGet(ctypes.byref(handle), index)
        cuda.cuDeviceGetName(name, 256, handle)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
        cuda.cuDeviceGetAttribute(ctypes.byref(units), _MULTIPROCESSORS, handle)
        cuda.cuDeviceGetUuid_v2(uuid, handle)
        label = name.value.decode(errors="replace")
        found.append(Device(rank, index, label, memory.value, units.value))
        digits = bytes(uuid).hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        uuids[index] = "GPU-" + "-".join(parts)
    return tuple(found), uuids


def synchronise() -> None:
    """Wait for what this thread's context has queued; nothing where there is no context."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    context = ctypes.c_void_p()
    if cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context.value:
        cuda.cuCtxSynchronize()
