"""Which CUDA calls are recorded: those that launch, copy, wait, record events or allocate."""

from __future__ import annotations

from typing import Any

from bubblescope.timeline import api


def plain(member: str) -> str:
    """A call's name without the suffixes of CUPTI's enums: cudaLaunchKernel_ptsz_v7000."""
    return api.plain(member)


def wanted(name: str) -> bool:
    """Whether a call of this name says where the time went."""
    return (
        api.is_kernel_launch(name)
        or api.is_graph_launch(name)
        or api.is_query(name)
        or api.is_allocator(name)
        or api.is_event_record(name)
        or api.is_stream_wait(name)
        or blocks(name)
        or "Memset" in name
        or name.endswith(("StreamBeginCapture", "StreamEndCapture"))
    )


def blocks(name: str) -> bool:
    """Whether a call of this name can be a blocking read, so that its line is worth knowing."""
    return api.is_sync(name) or api.is_copy(name)


def ids(cupti: Any) -> tuple[dict[int, str], dict[int, str]]:
    """Names of every runtime and driver call by CUPTI's id."""
    runtime = {int(v): plain(n) for n, v in cupti.RuntimeApiTraceCbid.__members__.items()}
    driver = {int(v): plain(n) for n, v in cupti.DriverApiTraceCbid.__members__.items()}
    return (
        {k: n for k, n in runtime.items() if n.startswith("cuda")},
        {k: n for k, n in driver.items() if n.startswith("cu")},
    )
