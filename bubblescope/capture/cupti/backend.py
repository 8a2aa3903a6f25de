"""The CUPTI backend: what to switch on when, and what to say of the result."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np

from bubblescope.capture import nvml
from bubblescope.capture.backend import Tables
from bubblescope.capture.cupti import calls, devices, library, records
from bubblescope.capture.cupti.buffers import BUFFER_BYTES, Buffers
from bubblescope.capture.cupti.subscriber import Subscriber
from bubblescope.capture.pauses import Pauses
from bubblescope.timeline import Device, DeviceOps, Health, HostCalls, Ranges, api

Level = Literal["graph", "node"]

_RUNTIME_API, _DRIVER_API = 2, 1  # CUpti_CallbackDomain: DRIVER_API, RUNTIME_API


class CuptiBackend:
    """Records the CUDA work of this process.

    Graph level takes each graph replay as one operation: true times, and nothing of the inside.
    It sees only graphs that were captured after `prepare`. Node level sees every node, and the
    times of small kernels then include CUPTI's own.

    Once CUPTI is attached, launches take longer until the process ends, recorded or not: 0.5 % of a
    42-layer decode step, 5 % of one that waits for a graph of 500 kernels (docs/trace.md). With
    cuptiFinalize the loop later failed with an illegal memory access, so CUPTI stays attached.
    """

    def __init__(
        self,
        level: Level = "graph",
        *,
        sites: bool = True,
        buffer_bytes: int = BUFFER_BYTES,
        limit: int | None = None,
        full: Any = None,
        path: Path | None = None,
        rank: int = 0,
    ) -> None:
        """Nothing is loaded or switched on before `prepare`.

        Args:
            level: "graph" or "node".
            sites: name the source line of each call that may block.
            buffer_bytes: size of each of CUPTI's buffers.
            limit: stop asking for records after about so many; full is called then.
            full: called once, on a thread of CUPTI's.
            path: the CUPTI library to load, found where None.
            rank: written into every table.
        """
        self._level, self._with_sites, self._path, self._rank = level, sites, path, rank
        self._buffers = Buffers(buffer_bytes, limit, full)
        self._pauses = Pauses()
        self._cupti: Any = None
        self._subscriber: Subscriber | None = None
        self._enabled: list[int] = []
        self._ids: tuple[dict[int, str], dict[int, str]] = ({}, {})
        self._wanted: list[tuple[int, int]] = []
        self._began = self._shift = 0
        self._before: dict[str, str] = {}
        self._devices: tuple[Device, ...] = ()

    @property
    def title(self) -> str:
        """For `Meta.capture`."""
        return "CUPTI"

    @property
    def level(self) -> str:
        """As asked for."""
        return self._level

    @property
    def lost(self) -> str:
        """What this level cannot see."""
        if self._level == "graph":
            return "the inside of graph replays is not recorded"
        return "kernels of graphs are recorded one by one, which lengthens small ones"

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices of this process, known once recording has started."""
        return self._devices

    def versions(self) -> dict[str, str]:
        """Versions of what recorded."""
        return {"cupti": library.loaded_version(), "cupti-python": library.package_version()}

    def in_callback(self, frame: FrameType | None) -> bool:
        """Whether a frame is inside a callback of CUPTI's, where nothing of CUDA may be called."""
        return self._subscriber is not None and self._subscriber.in_callback(frame)

    def prepare(self) -> None:
        """Take CUPTI for this process; at graph level, see the graphs captured from now on.

        Raises:
            BubblescopeError: CUPTI is not there, too old, or held by another tool.
        """
        if self._cupti is not None:
            return
        cupti = library.load(self._path)
        # NVTX asks for this when the process first uses it.
        os.environ.setdefault("NVTX_INJECTION64_PATH", str(library.loaded() or ""))
        subscriber = Subscriber(cupti)
        subscriber.open()
        self._cupti, self._subscriber = cupti, subscriber
        cupti.set_thread_id_type(cupti.ActivityThreadIdType.SYSTEM)
        cupti.activity_register_callbacks(self._buffers.requested, self._buffers.completed)
        runtime, driver = calls.ids(cupti)
        self._ids = runtime, driver
        self._wanted = [
            (domain, number)
            for domain, names in ((_RUNTIME_API, runtime), (_DRIVER_API, driver))
            for number, name in names.items()
            if calls.wanted(name)
        ]
        if self._level == "graph":
            self._enable(cupti.ActivityKind.GRAPH_TRACE)

    def start(self) -> None:
        """Record from now on; takes some milliseconds."""
        self.prepare()
        try:
            self._start()
        except BaseException:
            self.abandon()
            raise

    def _start(self) -> None:
        cupti = self._cupti
        self._devices, uuids = devices.find(self._rank)
        self._before = nvml.state(uuids)
        cupti.activity_flush_all(1)
        self._dropped()
        self._buffers.clear()
        kind = cupti.ActivityKind
        for one in (
            kind.CONCURRENT_KERNEL,
            kind.MEMCPY,
            kind.MEMCPY2,
            kind.MEMSET,
            kind.SYNCHRONIZATION,
            kind.CUDA_EVENT,
            kind.MARKER,
            kind.OVERHEAD,
        ):
            self._enable(one)
        self._wanted = self._switch_calls(1)
        if self._with_sites and self._subscriber is not None:
            runtime, driver = self._ids
            self._subscriber.watch(
                [
                    (domain, number)
                    for domain, number in self._wanted
                    if calls.blocks((runtime if domain == _RUNTIME_API else driver)[number])
                ]
            )
        self._pauses = Pauses()
        self._pauses.open()
        self._shift = self._clock()
        self._began = time.time_ns()

    def stop(self, synchronise: bool = True) -> Tables:
        """Stop, and make tables of what was recorded; CUPTI is given back.

        Args:
            synchronise: wait for the device; False where another thread may be capturing.
        """
        ended = time.time_ns()
        self._switch_calls(0)
        assert self._subscriber is not None
        self._subscriber.unwatch()
        self._pauses.close()
        if synchronise:
            devices.synchronise()
        else:
            time.sleep(0.1)
        cupti = self._cupti
        cupti.activity_flush_all(1)
        for kind in self._enabled:
            cupti.activity_disable(kind)
        self._enabled.clear()
        dropped = self._dropped()
        self._subscriber.close()
        runtime, driver = self._ids
        window = records.Window(
            self._began,
            ended,
            os.getpid(),
            runtime,
            driver,
            self._rank,
            self._shift,
            self._subscriber.sites,
        )
        made = records.make(self._buffers.take(), window)
        late = [t for t, _ in self._buffers.completions() if self._began <= t < ended]
        self._devices, uuids = devices.find(self._rank)
        self._cupti = None
        return Tables(
            made.device_ops,
            made.host_calls,
            Ranges.concat([made.ranges, self._collections(ended)]),
            made.frames,
            self._health(made, dropped, len(late)),
            self._about(uuids),
        )

    def abandon(self) -> None:
        """Switch everything off and keep nothing."""
        if self._cupti is not None:
            self.stop(synchronise=False)

    def _enable(self, kind: int) -> None:
        self._cupti.activity_enable(kind)
        self._enabled.append(kind)

    def _switch_calls(self, on: int) -> list[tuple[int, int]]:
        """Switch the records of the wanted calls; returns those that this CUPTI knows.

        cupti-python's list of calls may be longer than that of the library under it.
        """
        known = []
        for domain, number in self._wanted:
            enable = (
                self._cupti.activity_enable_runtime_api
                if domain == _RUNTIME_API
                else self._cupti.activity_enable_driver_api
            )
            try:
                enable(number, on)
            except self._cupti.cuptiError:
                continue
            known.append((domain, number))
        return known

    def _dropped(self) -> int:
        """Records dropped since this was last asked."""
        count = ctypes.c_size_t()
        self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(count))
        return count.value

    def _clock(self) -> int:
        """What to add to CUPTI's times to get `time.time_ns()`'s; 0 where they agree."""
        before = time.time_ns()
        at = int(self._cupti.get_timestamp())
        after = time.time_ns()
        return 0 if before <= at <= after else (before + after) // 2 - at

    def _collections(self, ended: int) -> Ranges:
        rows = [r for r in self._pauses.rows if r[3] > self._began and r[2] < ended]
        return Ranges.build(
            len(rows),
            rank=self._rank,
            process=os.getpid(),
            thread=[r[0] for r in rows],
            kind="python",
            name=[r[1] for r in rows],
            start=[r[2] for r in rows],
            end=[r[3] for r in rows],
        )

    def _about(self, uuids: dict[int, str]) -> dict[str, str]:
        about = {f"{key} before": text for key, text in self._before.items() if key != "driver"}
        about |= nvml.state(uuids)
        about |= {f"gpu {index} uuid": uuid for index, uuid in uuids.items()}
        return about

    def _health(self, made: records.Made, dropped: int, late: int) -> Health:
        notes: list[tuple[str, int, str]] = []
        if dropped:
            notes.append(
                ("dropped record", dropped, f"CUPTI dropped {dropped:,} records: its buffers ended")
            )
        if made.unfinished:
            notes.append(
                ("unfinished operation", made.unfinished, "still running at the end: left out")
            )
        if late:
            notes.append(
                (
                    "buffer callback",
                    late,
                    "CUPTI's buffers filled while recording: times around that are too long",
                )
            )
        unseen = _unseen_graphs(made.device_ops, made.host_calls)
        if self._level == "graph" and unseen:
            notes.append(
                (
                    "graph captured earlier",
                    unseen,
                    f"{unseen:,} graph launches are invisible at graph level: their graphs were "
                    "captured before recording was prepared; enter trace before the capture, or "
                    "record at node level",
                )
            )
        return Health.build(
            len(notes),
            rank=self._rank,
            kind=[n[0] for n in notes],
            count=[n[1] for n in notes],
            note=[n[2] for n in notes],
        )


def _unseen_graphs(ops: DeviceOps, host: HostCalls) -> int:
    """Graph launches that left nothing on the device."""
    launched = host.correlation[host.name.where(api.is_graph_launch)]
    return int((~np.isin(launched, ops.correlation)).sum())
