"""What a Kineto file says of itself: devices, versions, rank, thread names."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from bubblescope.ingest.codes import integer
from bubblescope.ingest.kineto_events import Label
from bubblescope.timeline import Device, DeviceOps, HostCalls, Meta, Ranges, ThreadName
from bubblescope.timeline.api import is_graph_launch


class Document(msgspec.Struct):
    """The top level of the file. Everything but the events is optional and of any type."""

    trace_events: list[msgspec.Raw] = msgspec.field(name="traceEvents")
    base_ns: Any = msgspec.field(default=0, name="baseTimeNanoseconds")
    devices: Any = msgspec.field(default=(), name="deviceProperties")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    trace_name: Any = msgspec.field(default=None, name="traceName")
    schema: Any = msgspec.field(default=None, name="schemaVersion")
    cuda_runtime_version: Any = None
    cuda_driver_version: Any = None
    cupti_version: Any = None
    hip_runtime_version: Any = None
    hip_driver_version: Any = None
    roctracer_version: Any = None
    record_shapes: Any = None
    with_stack: Any = None
    with_flops: Any = None
    with_modules: Any = None
    profile_memory: Any = None
    own: Any = msgspec.field(default=None, name="bubblescope")


def rank_and_world(document: Document) -> tuple[int, int]:
    """Rank and world size; 0 and 1 where the file gives none.

    The field is an object, or a text that holds a Python dict and may have been cut short.
    """
    info = document.distributed
    rank, world = -1, -1
    if isinstance(info, dict):
        rank, world = integer(info.get("rank")), integer(info.get("world_size"))
    elif isinstance(info, str):
        rank, world = _in_text("rank", info), _in_text("world_size", info)
    return max(rank, 0), max(world, 1)


def _in_text(key: str, text: str) -> int:
    found = re.search(rf"""['"]{key}['"]\s*:\s*([0-9]{{1,9}})""", text)
    return int(found[1]) if found else -1


def meta(
    document: Document,
    source: str,
    base_ns: int,
    labels: list[Label],
    ops: DeviceOps,
    calls: HostCalls,
    ranges: Ranges,
) -> Meta:
    """The Timeline's meta, from the file and from what its tables turned out to hold."""
    rank, world_size = rank_and_world(document)
    return Meta(
        source=source,
        format="PyTorch profiler",
        capture="torch.profiler",
        level="node" if _nodes_recorded(ops, calls) else "",
        base_ns=base_ns,
        devices=_devices(document.devices, set(np.unique(ops.device).tolist()), rank),
        threads=_threads(labels, _host_processes(calls, ranges), rank),
        versions=_versions(document),
        world_size=world_size,
        about=_about(document),
    )


def _nodes_recorded(ops: DeviceOps, calls: HostCalls) -> bool:
    """Whether several operations share the correlation id of one graph launch."""
    launched = calls.correlation[calls.name.where(is_graph_launch)]
    shared, count = np.unique(ops.correlation[ops.correlation >= 0], return_counts=True)
    return bool(np.isin(shared[count > 1], launched).any())


def _devices(listed: Any, active: set[int], rank: int) -> tuple[Device, ...]:
    """The devices that did something; a node's other devices are listed in every file too.

    ROCm lists the devices that the process sees, from 0, but numbers its rows by those of the
    node: where only one device is listed and only one did something, they are the same.
    """
    if not isinstance(listed, list):
        return ()
    found = [
        Device(
            rank=rank,
            index=integer(device.get("id")),
            name=str(device.get("name", "")),
            memory=max(0, integer(device.get("totalGlobalMem"))),
            multiprocessors=max(0, integer(device.get("numSms"))),
        )
        for device in listed
        if isinstance(device, dict)
    ]
    if len(found) == len(active) == 1:
        return (msgspec.structs.replace(found[0], index=next(iter(active))),)
    return tuple(d for d in found if d.index in active)


def _host_processes(calls: HostCalls, ranges: Ranges) -> set[int]:
    return {*np.unique(calls.process).tolist(), *np.unique(ranges.process).tolist()}


def _threads(labels: list[Label], processes: set[int], rank: int) -> tuple[ThreadName, ...]:
    """Names of host processes and threads; devices and their streams are labelled alike."""
    names: dict[tuple[int, int], str] = {}
    for label in labels:
        process = integer(label.pid)
        name = label.args.name if label.args else ""
        if process not in processes or not isinstance(name, str) or not name:
            continue
        if label.name == "process_name":
            names[process, -1] = name
        elif label.name == "thread_name":
            names[process, integer(label.tid)] = name
    return tuple(ThreadName(rank, *key, name) for key, name in names.items())


def _versions(document: Document) -> dict[str, str]:
    found = {
        "CUDA runtime": _cuda(document.cuda_runtime_version),
        "CUDA driver": _cuda(document.cuda_driver_version),
        "CUPTI": _plain(document.cupti_version),
        "HIP runtime": _hip(document.hip_runtime_version),
        "HIP driver": _hip(document.hip_driver_version),
        "roctracer": _plain(document.roctracer_version),
        "trace schema": _plain(document.schema),
    }
    return {name: version for name, version in found.items() if version}


def _plain(version: Any) -> str:
    return "" if version is None else str(version)


def _cuda(version: Any) -> str:
    """13000 is 13.0."""
    number = integer(version)
    return f"{number // 1000}.{number % 1000 // 10}" if number >= 1000 else _plain(version)


def _hip(version: Any) -> str:
    """70253211 is 7.2.53211."""
    number = integer(version)
    if number < 10**7:
        return _plain(version)
    return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"


def _about(document: Document) -> dict[str, str]:
    flags = ("record_shapes", "with_stack", "with_flops", "with_modules", "profile_memory")
    about = {flag: str(value) for flag in flags if (value := getattr(document, flag)) is not None}
    if isinstance(document.trace_name, str):
        about["traceName"] = document.trace_name
    return about
