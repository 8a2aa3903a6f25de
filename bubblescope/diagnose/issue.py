"""What a diagnosis says of launches and queues: frozen data, times in ns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.timeline.tables import Int


@dataclass(frozen=True, slots=True)
class Spread:
    """How a time is distributed. p90_ns: the least that nine of ten do not pass; p99_ns alike."""

    count: int
    min_ns: int
    median_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int

    @classmethod
    def of(cls, values: Int) -> Spread | None:
        """Of values in ns, shape (n,); None of nothing."""
        rows = len(values)
        if not rows:
            return None
        at = [-(-rows * share // 100) - 1 for share in (90, 99)]
        low, high = (rows - 1) // 2, rows // 2
        placed = np.partition(values, sorted({0, low, high, *at, rows - 1}))
        return cls(
            count=rows,
            min_ns=int(placed[0]),
            median_ns=(int(placed[low]) + int(placed[high])) // 2,
            p90_ns=int(placed[at[0]]),
            p99_ns=int(placed[at[1]]),
            max_ns=int(placed[-1]),
        )


@dataclass(frozen=True, slots=True)
class Calls:
    """Launch calls of one kind, "kernel" or "graph".

    call: how long the call itself took. latency: from its beginning to that of the operation, on a
    device that had nothing to do when the call began. queued: from its return to the beginning of
    the operation, on a device that had.
    """

    kind: str
    call: Spread
    latency: Spread | None
    queued: Spread | None


@dataclass(frozen=True, slots=True)
class Slice:
    """The least run-ahead in one part of the window: time, and operations."""

    ahead_ns: int
    depth: int


@dataclass(frozen=True, slots=True)
class RunAhead:
    """How far the host was ahead of one device whenever a call launched something.

    ahead: how long the device would work on with what it had been given; depth_*: operations given
    and not done. dry: launches at which it had none. over_time: the window in equal slices, None
    where nothing was launched.
    """

    rank: int
    device: int
    launches: int
    dry: int
    ahead: Spread
    depth_median: int
    depth_max: int
    over_time: tuple[Slice | None, ...]


@dataclass(frozen=True, slots=True)
class HostCost:
    """Calls of one kind and the host time in them. blocking: those that returned only when done."""

    name: str
    calls: int
    blocking: int
    ns: int


@dataclass(frozen=True, slots=True)
class Pause:
    """One stretch of a host gap far longer than those in the same record of other steps.

    step: number of the step. ns: how long; typical_ns: the median over steps of the longest such.
    doing, name: what the launching thread was in.
    """

    step: int
    rank: int
    device: int
    ns: int
    typical_ns: int
    doing: str
    name: str


@dataclass(frozen=True, slots=True)
class LaunchStatistics:
    """Launches and queues, summed over devices.

    launches: calls that launched a kernel or a graph; *_per_step: medians over counted steps, None
    without steps. launch_and_queue_ns: from the beginning of each such call to that of its first
    operation, summed. kernels: those with a call of their own; short: those of them that ran for
    less time than their call took, and short_ns their time. pageable: copies from or to pageable
    memory, by direction; allocator: by call. pauses: the longest first; pauses_ns: by how much all
    of them exceed what is usual, pauses_count of them.
    """

    launches: int
    launches_per_step: int | None
    call_ns: int
    call_ns_per_step: int | None
    launch_and_queue_ns: int
    launch_and_queue_ns_per_step: int | None
    calls: tuple[Calls, ...]
    kernels: int
    short: int
    short_ns: int
    run_ahead: tuple[RunAhead, ...]
    pageable: tuple[HostCost, ...]
    allocator: tuple[HostCost, ...]
    pauses_count: int
    pauses_ns: int
    pauses: tuple[Pause, ...]
