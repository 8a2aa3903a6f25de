"""Recordings of several processes of one program as one Timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from bubblescope.timeline import (
    Device,
    DeviceOps,
    Frames,
    Health,
    HostCalls,
    Ranges,
    Steps,
    Timeline,
)
from bubblescope.timeline.tables import Int


def join(timelines: Sequence[Timeline]) -> Timeline:
    """One Timeline of all processes; a device that several of them use is one device.

    Processes number the devices that they were allowed to see, so devices are told apart by UUID.
    """
    if len(timelines) == 1:
        return timelines[0]
    uuids = sorted({u for t in timelines for u in _uuids(t).values()})
    offsets = np.cumsum([0, *(len(t.frames) for t in timelines[:-1])]).tolist()
    parts = [_moved(t, uuids, offset) for t, offset in zip(timelines, offsets, strict=True)]
    first = max(timelines, key=lambda t: len(t.device_ops)).meta
    devices = {(d.rank, d.index): d for p in parts for d in p.meta.devices}
    meta = msgspec.structs.replace(
        first,
        devices=tuple(devices[key] for key in sorted(devices)),
        threads=tuple(t for p in parts for t in p.meta.threads),
        world_size=max(t.meta.world_size for t in timelines),
    )
    return Timeline.of(
        meta,
        device_ops=DeviceOps.concat([p.device_ops for p in parts]),
        host_calls=HostCalls.concat([p.host_calls for p in parts]),
        ranges=Ranges.concat([p.ranges for p in parts]),
        frames=Frames.concat([p.frames for p in parts]),
        steps=Steps.concat([p.steps for p in parts]),
        health=Health.concat([p.health for p in parts]),
    )


def _uuids(timeline: Timeline) -> dict[int, str]:
    about = timeline.meta.about
    found = {d.index: about.get(f"gpu {d.index} uuid", "") for d in timeline.meta.devices}
    return {index: uuid for index, uuid in found.items() if uuid}


def _moved(timeline: Timeline, uuids: list[str], offset: int) -> Timeline:
    """With the devices' numbers of all, and its frames `offset` rows further down."""
    number = {index: uuids.index(uuid) for index, uuid in _uuids(timeline).items()}
    ops, calls, ranges = timeline.device_ops, timeline.host_calls, timeline.ranges
    device = ops.device.copy()
    for index, new in number.items():
        device[ops.device == index] = new
    devices = tuple(
        Device(d.rank, number.get(d.index, d.index), d.name, d.memory, d.multiprocessors)
        for d in timeline.meta.devices
    )
    return Timeline.of(
        msgspec.structs.replace(timeline.meta, devices=devices),
        device_ops=replace(ops, device=device),
        host_calls=replace(calls, frame=_shifted(calls.frame, offset)),
        ranges=replace(ranges, frame=_shifted(ranges.frame, offset)),
        frames=timeline.frames,
        steps=timeline.steps,
        health=timeline.health,
    )


def _shifted(frame: Int, offset: int) -> Int:
    return np.where(frame >= 0, frame + offset, -1)
