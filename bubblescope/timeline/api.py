"""What CUDA and HIP call names mean. What blocks is decided by evidence, not here.

Calls to the CPU stream thread of targets/ling have the prefix "cpu": cpuGraphLaunch.
"""

from __future__ import annotations

import re

_SUFFIX = re.compile(r"(_v\d+|_ptsz|_ptds|_spt)+$")
_KERNEL_LAUNCH = re.compile(
    r"^((cuda|cu|hip|cpu)\w*Launch(Cooperative|Extended)?Kernel|cudaLaunch(_|$)|hipLaunchByPtr)"
)
_GRAPH_LAUNCH = re.compile(r"^(cuda|cu|hip|cpu)GraphLaunch$")
_SYNC = re.compile(
    r"^(cuda(Stream|Device|Thread|Event)|cu(Stream|Ctx|Event)|(hip|cpu)(Stream|Device|Event))"
    r"Synchronize$"
)
_QUERY = re.compile(r"^(cuda|cu|hip|cpu)(Stream|Event)Query$")
_COPY = re.compile(r"^(cuda|cu|hip|cpu)Memcpy")
_ALLOCATOR = re.compile(
    r"^(cuda|cu|hip|cpu)(Ext)?(Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister"
    r"|Mem(Alloc|Free|HostAlloc|Create|Map|Unmap|Release|AddressReserve|AddressFree|SetAccess|Pool))"
)
_EVENT_RECORD = re.compile(r"^(cuda|cu|hip|cpu)EventRecord")
_STREAM_WAIT = re.compile(r"^(cuda|cu|hip|cpu)StreamWaitEvent$")


def plain(name: str) -> str:
    """The name without the version suffix that some tools add (`cudaLaunchKernel_v7000`)."""
    return _SUFFIX.sub("", name)


def is_kernel_launch(name: str) -> bool:
    """Starts one kernel: cudaLaunchKernel, cuLaunchKernelEx, hipExtModuleLaunchKernel, ...

    Before CUDA 9.2 it was cudaLaunch.
    """
    return _KERNEL_LAUNCH.match(name) is not None


def is_graph_launch(name: str) -> bool:
    """Starts a graph replay."""
    return _GRAPH_LAUNCH.match(plain(name)) is not None


def is_sync(name: str) -> bool:
    """Stream, device, context or event synchronise."""
    return _SYNC.match(plain(name)) is not None


def is_query(name: str) -> bool:
    """Asks whether a stream or event is done, and returns at once."""
    return _QUERY.match(plain(name)) is not None


def is_copy(name: str) -> bool:
    """A memory copy of any kind."""
    return _COPY.match(name) is not None


def is_async_copy(name: str) -> bool:
    """A memory copy that says of itself that it does not wait."""
    return is_copy(name) and "Async" in name


def is_allocator(name: str) -> bool:
    """Device or pinned memory is allocated, mapped or freed."""
    return _ALLOCATOR.match(name) is not None


def is_event_record(name: str) -> bool:
    """Records an event in a stream."""
    return _EVENT_RECORD.match(name) is not None


def is_stream_wait(name: str) -> bool:
    """Makes a stream wait for an event; the host does not wait."""
    return _STREAM_WAIT.match(plain(name)) is not None
