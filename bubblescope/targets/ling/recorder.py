"""Records the CPU stream thread: it tells itself what it does, nothing is lost."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bubblescope.capture.backend import Tables
from bubblescope.timeline import Device, DeviceOps, Frames, HostCalls, Ranges
from bubblescope.timeline.meta import STREAM_THREAD
from bubblescope.timeline.tables import Int

if TYPE_CHECKING:
    from torch import Tensor

    from bubblescope.targets.ling.stream_thread import Graph, StreamThread

_Rows = list[tuple[Any, ...]]
_DEVICE_FILES = frozenset(
    str(Path(__file__).with_name(name)) for name in ("recorder.py", "stream_thread.py")
)


class StreamThreadBackend:
    """A Backend, and the recorder that the device tells of its calls and operations."""

    title = STREAM_THREAD
    level = "node"
    lost = ""

    def __init__(self, device: Callable[[], StreamThread]) -> None:
        """`device` is asked for at the start of a recording."""
        self._find = device
        self._device: StreamThread | None = None
        self._reset()

    def _reset(self) -> None:
        self._calls: _Rows = []
        self._ranges: _Rows = []
        self._operations: _Rows = []
        self._replays: list[tuple[int, int, Graph, Tensor]] = []
        self._frames: dict[tuple[str, int, str], int] = {}
        self._lock_waits_ns: list[int] = []

    @property
    def devices(self) -> tuple[Device, ...]:
        """The one device, once recording has started."""
        return () if self._device is None else (Device(0, 0, self._device.name),)

    def start(self) -> None:
        """Record what is called from now on; work that was queued before leaves no record."""
        from bubblescope.targets.ling.program import clock_offset_ns

        self._reset()
        self._device = self._find()
        self._offset_ns = clock_offset_ns()
        self._device.recorder = self

    def stop(self) -> Tables:
        """Stop recording, wait for what was queued meanwhile, and hand over the tables."""
        if self._device is None:
            return Tables()
        self._device.recorder = None
        self._device.drain()
        process = os.getpid()
        tables = Tables(
            self._device_ops(process),
            self._host_calls(process),
            self._host_ranges(process),
            self._call_sites(),
            about=self._about(),
        )
        self._reset()
        return tables

    # -- what the device tells, on whatever thread it happens ------------------------------

    def call(
        self,
        name: str,
        begin: int,
        end: int,
        correlation: int,
        *,
        sync: str = "",
        stream: int = -1,
        event_stream: int = -1,
        event_record: int = -1,
    ) -> None:
        """A host call of the calling thread, with the line of the program that made it."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename in _DEVICE_FILES:
            frame = frame.f_back
        code = frame.f_code
        where = (code.co_filename, frame.f_lineno, code.co_qualname)
        site = self._frames.setdefault(where, len(self._frames))
        thread = threading.get_native_id()
        self._calls.append(
            (name, begin, end, correlation, thread, site, sync, stream, event_stream, event_record)
        )

    def range(self, name: str, begin: int, end: int) -> None:
        """A named range of the calling thread."""
        self._ranges.append((name, begin, end, threading.get_native_id()))

    def operation(
        self,
        stream: int,
        correlation: int,
        kind: str,
        name: str,
        begin: int,
        end: int,
        size: int = -1,
    ) -> None:
        """A single operation of a stream."""
        self._operations.append((stream, correlation, kind, name, begin, end, size))

    def replay(
        self, stream: int, correlation: int, graph: Graph, times: Tensor, returned: int
    ) -> None:
        """All operations of a graph replay; `returned`: when its thread had Python's lock again."""
        self._replays.append((stream, correlation, graph, times))
        self._lock_waits_ns.append(returned - int(times[-1]))

    # -- tables ----------------------------------------------------------------------------

    def _device_ops(self, process: int) -> DeviceOps:
        stream, correlation, kind, name, begin, end, size = _columns(self._operations, 7)
        parts = [
            DeviceOps.build(
                len(self._operations),
                rank=0,
                process=process,
                device=0,
                stream=stream,
                kind=kind,
                name=name,
                start=self._epoch(begin),
                end=self._epoch(end),
                correlation=correlation,
                bytes=size,
            )
        ]
        for of_stream, launch, graph, times in self._replays:
            moments = times.numpy() + self._offset_ns
            parts.append(
                DeviceOps.build(
                    len(graph.program.names),
                    rank=0,
                    process=process,
                    device=0,
                    stream=of_stream,
                    kind="kernel",
                    name=graph.program.names,
                    start=moments[::2],
                    end=moments[1::2],
                    correlation=launch,
                    graph=graph.number,
                    node=np.arange(len(graph.program.names)),
                )
            )
        return DeviceOps.concat(parts)

    def _host_calls(self, process: int) -> HostCalls:
        columns = _columns(self._calls, 10)
        name, begin, end, correlation, thread, frame, sync, stream, of_stream, record = columns
        return HostCalls.build(
            len(self._calls),
            rank=0,
            process=process,
            thread=thread,
            name=name,
            start=self._epoch(begin),
            end=self._epoch(end),
            correlation=correlation,
            frame=frame,
            status=0,
            sync=sync,
            stream=stream,
            event_stream=of_stream,
            event_record=record,
        )

    def _host_ranges(self, process: int) -> Ranges:
        name, begin, end, thread = _columns(self._ranges, 4)
        return Ranges.build(
            len(self._ranges),
            rank=0,
            process=process,
            thread=thread,
            kind="annotation",
            name=name,
            start=self._epoch(begin),
            end=self._epoch(end),
        )

    def _call_sites(self) -> Frames:
        file, line, function = _columns(list(self._frames), 3)
        return Frames.build(len(self._frames), file=file, line=line, function=function)

    def _epoch(self, moments: list[Any]) -> Int:
        return np.asarray(moments, np.int64) + self._offset_ns

    def _about(self) -> dict[str, str]:
        if not self._lock_waits_ns:
            return {}
        waits = sorted(self._lock_waits_ns)
        middle, worst = waits[len(waits) // 2] / 1e3, waits[-1] / 1e3
        return {
            "interpreter lock": f"the device thread waited {middle:,.1f} us (median) to "
            f"{worst:,.1f} us for it after a graph replay; within a replay it needs none"
        }


def _columns(rows: _Rows, width: int) -> list[list[Any]]:
    """Rows turned into columns."""
    return [list(c) for c in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
