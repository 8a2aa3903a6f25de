"""From what a backend hands over to a Timeline."""

from __future__ import annotations

import os
import sys
import threading
from importlib.metadata import version

import numpy as np

from bubblescope.capture.backend import Backend, Tables
from bubblescope.timeline import Meta, Steps, ThreadName, Timeline


def assemble(
    backend: Backend,
    tables: Tables,
    steps: Steps,
    source: str,
    about: dict[str, str] | None = None,
    rank: int = 0,
) -> Timeline:
    """The Timeline of one recording of this process.

    Args:
        backend: it says how it recorded; its `devices` and `versions()` are used where it has any.
        tables: what it recorded.
        steps: the step marks; times on the clock of the tables.
        source: what was recorded, in a word or two.
        about: more facts for `Meta.about`.
        rank: of this process.
    """
    versions = {"bubblescope": version("bubblescope"), "python": sys.version.split()[0]}
    versions |= getattr(backend, "versions", dict)()
    torch = sys.modules.get("torch")
    if torch is not None:
        versions["torch"] = str(torch.__version__)
    lost = {"not seen": backend.lost} if backend.lost else {}
    meta = Meta(
        source=source,
        format="bubblescope capture",
        capture=backend.title,
        level=backend.level,
        devices=getattr(backend, "devices", ()),
        threads=_threads(rank, source),
        versions={name: text for name, text in versions.items() if text},
        about=lost | tables.about | (about or {}),
    )
    return Timeline.of(
        meta,
        device_ops=tables.device_ops,
        host_calls=tables.host_calls,
        ranges=tables.ranges,
        frames=tables.frames,
        steps=steps,
        health=tables.health,
    )


def _threads(rank: int, source: str) -> tuple[ThreadName, ...]:
    process = os.getpid()
    named = [
        ThreadName(rank, process, t.native_id, t.name)
        for t in threading.enumerate()
        if t.native_id is not None
    ]
    return (ThreadName(rank, process, -1, source), *named)


def from_step(timeline: Timeline, number: int) -> Timeline:
    """The timeline from one step before step `number` on, with the marks from `number` on.

    That one step is kept because the bubble that begins a step is measured from the end of the
    operation before it.
    """
    steps, calls, ops = timeline.steps, timeline.host_calls, timeline.device_ops
    before = steps.start[steps.number == number - 1]
    marks = steps.take(steps.number >= number)
    begin = int(before.min()) if len(before) else None
    if begin is None:
        kept = calls, ops, timeline.ranges
    else:
        early = calls.correlation[calls.start < begin]
        gone = np.isin(ops.correlation, early) | (ops.end <= begin)
        kept = (
            calls.take(calls.start >= begin),
            ops.take(~gone),
            timeline.ranges.take(timeline.ranges.end > begin),
        )
    return Timeline.of(
        timeline.meta,
        host_calls=kept[0],
        device_ops=kept[1],
        ranges=kept[2],
        frames=timeline.frames,
        steps=marks,
        health=timeline.health,
    )
