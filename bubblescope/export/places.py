"""Where each row of a Timeline stands in an exported trace: one clock, one id space, lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bubblescope.export.lanes import apart, nested
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import runs
from bubblescope.timeline.tables import Int

DEVICE_PID = 2_000_000_000
"""Devices stand from here on: in a container, processes have ids as small as devices'."""
OWN_PID = DEVICE_PID - 1
"""The diagnosis stands here."""
_LEAD_NS = 1_000_000
_STEPS_TID = 2**31 - 1
_MANY = 1 << 62
"""No thread of a system has such a number, and there is room behind it for lanes."""


@dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """Rows on tracks of a viewer.

    pid, tid: shape (rows,). names: (pid, tid, name) of each track, in order.
    """

    pid: Int
    tid: Int
    names: list[tuple[int, int, str]]


@dataclass(frozen=True, slots=True, eq=False)
class HostTracks:
    """Tracks of host calls, then ranges; threads: (pid, tid, thread) of lanes beside a thread."""

    calls: Tracks
    ranges: Tracks
    threads: list[tuple[int, int, int]]


class Places:
    """Numbers that are unique in one file, and the time at which it begins.

    A recording of one rank keeps its own ids, but for correlation ids that two processes share.
    With several ranks, processes and devices are numbered anew where they collide.
    """

    def __init__(self, timeline: Timeline) -> None:
        """The places of a Timeline's rows."""
        ops, calls, ranges, steps = (
            timeline.device_ops,
            timeline.host_calls,
            timeline.ranges,
            timeline.steps,
        )
        starts = [t.start.min() for t in (ops, calls, ranges, steps) if len(t)]
        first = int(min(starts)) - _LEAD_NS
        self.base_ns = first if first > 0 else 0
        tables = (ops, calls, ranges, steps)
        self._pids = _numbered(
            np.unique(np.concatenate([np.stack([t.rank, t.process], 1) for t in tables]), axis=0)
        )
        # Viewers know no device below 0: one whose number was not recorded takes a free one.
        devices = np.unique(np.stack([ops.rank, ops.device], 1), axis=0)
        self._devices = _numbered(devices[np.argsort(devices[:, 1] < 0, kind="stable")], least=0)
        self.correlation = _Correlations(timeline)

    def pids(self, rank: Int, process: Int) -> Int:
        """The process id of each row."""
        return _looked_up(self._pids, rank, process)

    def devices(self, rank: Int, device: Int) -> Int:
        """The device number of each row."""
        return _looked_up(self._devices, rank, device)

    def pid(self, rank: int, process: int) -> int:
        """The process id of one process."""
        return self._pids.get((rank, process), process)

    def device(self, rank: int, device: int) -> int:
        """The number of one device."""
        return self._devices.get((rank, device), device)

    def renumbered(self) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
        """(number here, rank, number) of processes and devices; nothing where all kept theirs."""
        kept = all(number == own for (_, own), number in self._devices.items())
        if kept and len({rank for rank, _ in [*self._pids, *self._devices]}) == 1:
            return [], []
        pids, devices = (
            [(number, rank, own) for (rank, own), number in of.items()]
            for of in (self._pids, self._devices)
        )
        return pids, devices

    def device_tracks(self, timeline: Timeline) -> Tracks:
        """A track for each stream, and more where its operations overlap."""
        ops = timeline.device_ops
        device = self.devices(ops.rank, ops.device)
        order = np.lexsort((ops.end, ops.start, ops.stream, device))
        tid = np.empty(len(ops), np.int64)
        names: list[tuple[int, int, str]] = []
        first, length = runs(device[order], ops.stream[order])
        for f, n in zip(first.tolist(), length.tolist(), strict=True):
            rows = order[f : f + n]
            lane = apart(ops.start[rows], ops.end[rows])
            stream, pid = int(ops.stream[rows[0]]), DEVICE_PID + int(device[rows[0]])
            # What has no stream is read back as such by a track without one.
            tids = [-1 if stream < 0 and k == 0 else len(names) + k for k in range(lane.max() + 1)]
            tid[rows] = np.array(tids)[lane]
            names += [(pid, t, _lane_name(f"stream {stream}", k)) for k, t in enumerate(tids)]
        return Tracks(DEVICE_PID + device, tid, names)

    def host_tracks(self, timeline: Timeline) -> HostTracks:
        """A track for each thread, and more where its rows cross."""
        calls, ranges = timeline.host_calls, timeline.ranges
        both = (calls, ranges)
        pid = np.concatenate([self.pids(t.rank, t.process) for t in both])
        thread = np.concatenate([t.thread for t in both])
        start = np.concatenate([t.start for t in both])
        end = np.concatenate([t.end for t in both])
        known = {(self.pid(t.rank, t.process), t.thread): t.name for t in timeline.meta.threads}
        order = np.lexsort((-end, start, thread, pid))
        tid = np.empty(len(pid), np.int64)
        free = int(thread.max(initial=0, where=thread < _MANY)) + 1
        names: list[tuple[int, int, str]] = []
        lanes: list[tuple[int, int, int]] = []
        first, length = runs(pid[order], thread[order])
        for f, n in zip(first.tolist(), length.tolist(), strict=True):
            rows = order[f : f + n]
            lane = nested(start[rows], end[rows])
            process, own = int(pid[rows[0]]), int(thread[rows[0]])
            more = int(lane.max())
            tids = [max(own, 0) if process < 0 else own, *range(free, free + more)]
            free += more
            tid[rows] = np.array(tids)[lane]
            called = known.get((process, own), f"thread {own}" if own >= 0 else "no thread named")
            names += [(process, t, _lane_name(called, k)) for k, t in enumerate(tids)]
            lanes += [(process, t, own) for t in tids[1:]]
        split = len(calls)
        return HostTracks(
            Tracks(pid[:split], tid[:split], names), Tracks(pid[split:], tid[split:], []), lanes
        )

    def step_tracks(self, timeline: Timeline) -> Tracks:
        """A track of step marks in each process that has any."""
        pid = self.pids(timeline.steps.rank, timeline.steps.process)
        names = [(p, _STEPS_TID, "step marks") for p in np.unique(pid).tolist()]
        return Tracks(pid, np.full(len(pid), _STEPS_TID), names)


class _Correlations:
    """Correlation ids that no two processes share."""

    def __init__(self, timeline: Timeline) -> None:
        calls, ops = timeline.host_calls, timeline.device_ops
        first, _ = runs(calls.rank, calls.process)
        self._owners = {(int(calls.rank[i]), int(calls.process[i])): n for n, i in enumerate(first)}
        keys = np.concatenate(
            [
                self._keys(calls.rank, calls.process, calls.correlation),
                self._keys(ops.rank, ops.process, ops.correlation),
            ]
        )
        self._known = np.unique(keys, axis=0)

    def _keys(self, rank: Int, process: Int, correlation: Int) -> Int:
        owner = np.full(len(rank), -1, np.int64)
        for (r, p), number in self._owners.items():
            owner[(rank == r) & (process == p)] = number
        return np.stack([owner, correlation], 1)

    def of(self, rank: Int, process: Int, correlation: Int) -> Int:
        """The ids of rows; -1 for those that belong to no process that made a call."""
        keys = self._keys(rank, process, correlation)
        nothing = (keys[:, 0] < 0) | (correlation < 0)
        if len(self._owners) < 2:
            return np.where(nothing, -1, correlation)
        view = np.dtype([("owner", np.int64), ("id", np.int64)])
        known = np.ascontiguousarray(self._known).view(view)[:, 0]
        found = np.searchsorted(known, np.ascontiguousarray(keys).view(view)[:, 0])
        return np.where(nothing, -1, found)


def _numbered(pairs: npt.NDArray[np.int64], least: int | None = None) -> dict[tuple[int, int], int]:
    """(rank, id) to an id that no other rank has, `least` or more: its own as far as possible."""
    numbers: dict[tuple[int, int], int] = {}
    taken: set[int] = set()
    for rank, own in pairs.tolist():
        number = own if least is None else max(own, least)
        while number in taken:
            number = max(taken) + 1
        taken.add(number)
        numbers[rank, own] = number
    return numbers


def _looked_up(numbers: dict[tuple[int, int], int], rank: Int, own: Int) -> Int:
    found = own.copy()
    for (r, o), number in numbers.items():
        if number != o:
            found[(rank == r) & (own == o)] = number
    return found


def _lane_name(name: str, lane: int) -> str:
    return name if lane == 0 else f"{name}, overlapping ({lane})"
