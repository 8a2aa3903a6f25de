"""Call names of CUDA, HIP and the CPU stream thread."""

from __future__ import annotations

import pytest

from bubblescope.timeline import api

KINDS = (
    api.is_kernel_launch,
    api.is_graph_launch,
    api.is_sync,
    api.is_query,
    api.is_copy,
    api.is_allocator,
    api.is_event_record,
    api.is_stream_wait,
)


@pytest.mark.parametrize("prefix", ["cuda", "cu", "hip", "cpu"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("LaunchKernel", api.is_kernel_launch),
        ("GraphLaunch", api.is_graph_launch),
        ("StreamSynchronize", api.is_sync),
        ("EventSynchronize", api.is_sync),
        ("EventQuery", api.is_query),
        ("MemcpyAsync", api.is_copy),
        ("EventRecord", api.is_event_record),
        ("StreamWaitEvent", api.is_stream_wait),
        ("MemAlloc", api.is_allocator),
    ],
)
def test_each_call_is_of_one_kind(prefix: str, name: str, kind: object) -> None:
    assert [k for k in KINDS if k(prefix + name)] == [kind]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        # Compiled with a default stream for each thread, CUDA and HIP.
        ("cudaGraphLaunch_ptsz", api.is_graph_launch),
        ("hipGraphLaunch_spt", api.is_graph_launch),
        ("hipLaunchKernel_spt", api.is_kernel_launch),
        ("hipStreamSynchronize_spt", api.is_sync),
        ("hipEventQuery_v2_spt", api.is_query),
        ("hipMemcpyAsync_spt", api.is_copy),
        ("hipStreamWaitEvent_spt", api.is_stream_wait),
        # Before CUDA 9.2 and ROCm 3.
        ("cudaLaunch", api.is_kernel_launch),
        ("cudaLaunch_v3020", api.is_kernel_launch),
        ("hipLaunchByPtr", api.is_kernel_launch),
    ],
)
def test_other_spellings(name: str, kind: object) -> None:
    assert [k for k in KINDS if k(name)] == [kind]


@pytest.mark.parametrize(
    "name",
    [
        "cudaLaunchHostFunc",
        "cudaLaunchHostFunc_v10000",
        "cpuinfo",
        "cpLaunchKernel",
        "xcpuGraphLaunch",
        "cpuThreadSynchronize",
        "gpuMemcpy",
    ],
)
def test_other_names_are_of_none(name: str) -> None:
    assert not any(k(name) for k in KINDS)


def test_only_a_copy_that_says_so_is_asynchronous() -> None:
    assert api.is_async_copy("cpuMemcpyAsync")
    assert not api.is_async_copy("cudaMemcpy")
