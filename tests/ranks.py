"""Recordings of several ranks as one Timeline, for tests that read files one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import msgspec
import numpy as np

from bubblescope.timeline import Timeline


def together(timelines: list[Timeline]) -> Timeline:
    """All of them, on the clocks that they have."""
    first = np.cumsum([0, *(len(t.frames) for t in timelines)]).tolist()
    tables = {name: [t.tables()[name] for t in timelines] for name in timelines[0].tables()}
    tables["ranges"] = [
        replace(t.ranges, frame=np.where(t.ranges.frame < 0, -1, t.ranges.frame + offset))
        for t, offset in zip(timelines, first, strict=False)
    ]
    tables["host_calls"] = [
        replace(t.host_calls, frame=np.where(t.host_calls.frame < 0, -1, t.host_calls.frame + o))
        for t, o in zip(timelines, first, strict=False)
    ]
    meta = msgspec.structs.replace(
        timelines[0].meta,
        devices=tuple(chain.from_iterable(t.meta.devices for t in timelines)),
        world_size=max(t.meta.world_size for t in timelines),
    )
    return Timeline.of(meta, **{name: type(rows[0]).concat(rows) for name, rows in tables.items()})
