"""Communication between devices, told by names: of kernels, and of what launched them."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from bubblescope.diagnose.launches import Launches
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import IntervalIndex
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads


class Collective(IntEnum):
    """What devices exchange. Of the first four, none ends on any rank before all have begun."""

    ALL_REDUCE = 1
    REDUCE_SCATTER = 2
    ALL_GATHER = 3
    ALL_TO_ALL = 4
    BROADCAST = 5
    REDUCE = 6
    SEND_RECEIVE = 7
    OTHER = 8

    @property
    def label(self) -> str:
        """The name that tables and JSON use: "all-reduce"."""
        return _LABELS[self - 1]

    @property
    def waits_for_all(self) -> bool:
        """Whether a rank in it waits until the last one has begun it."""
        return self <= Collective.ALL_TO_ALL


_LABELS = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "all-to-all",
    "broadcast",
    "reduce",
    "send/receive",
    "other",
)

_WORDS = (
    (Collective.ALL_REDUCE, r"all_?reduce|cross_device_reduce"),
    (Collective.REDUCE_SCATTER, r"reduce_?scatter"),
    (Collective.ALL_GATHER, r"all_?gather"),
    (Collective.ALL_TO_ALL, r"all_?to_?all|moe_?a2a"),
)
_ANYWHERE = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in _WORDS)
_LIBRARY = tuple(
    (kind, re.compile(words, re.IGNORECASE))
    for kind, words in (
        *_WORDS,
        (Collective.SEND_RECEIVE, r"send_?recv|sendrecv|^(send|recv|isend|irecv)|p2p"),
        (Collective.BROADCAST, r"broadcast"),
        (Collective.REDUCE, r"reduce"),
        # Only what must come from all experts can be combined.
        (Collective.ALL_TO_ALL, r"dispatch|combine"),
    )
)
# NCCL and RCCL, their symmetric and MSCCL kernels, DeepEP and NVSHMEM.
_OF_LIBRARY = re.compile(
    r"^(void )?(nccl|rccl|msccl)\w*|\bmscclpp::|\bdeep_ep::|\bnvshmem", re.IGNORECASE
)
# Inductor names a fused kernel after the ops around it, a collective's too.
_FUSED = re.compile(r"^triton_(poi|red|per|tem|for|mm)_fused")
_BETWEEN_DEVICES = re.compile(r"^Memcpy PtoP")
_ASKED = re.compile(r"^(?:nccl|rccl):(.+)")


def of_kernel(name: str) -> Collective | None:
    """What the operation of that name exchanges; None for what is no communication."""
    if _FUSED.match(name):
        return None
    if _OF_LIBRARY.search(name):
        return _first(_LIBRARY, name) or Collective.OTHER
    if _BETWEEN_DEVICES.match(name):
        return Collective.SEND_RECEIVE
    return _first(_ANYWHERE, name)


def of_call(name: str) -> Collective:
    """What a framework calls the collective: "_allgather_base", "nccl:all_to_all"."""
    found = _ASKED.match(name)
    return _first(_LIBRARY, found[1] if found else name) or Collective.OTHER


def _first(
    patterns: tuple[tuple[Collective, re.Pattern[str]], ...], name: str
) -> Collective | None:
    return next((kind for kind, pattern in patterns if pattern.search(name)), None)


def find(timeline: Timeline, launches: Launches, threads: Threads) -> tuple[Int, Int]:
    """The operations that communicate, and what each of them does.

    What the framework called it counts first, then the annotation that it was launched in
    ("nccl:all_to_all"), then the name of the kernel: NCCL runs several kinds as SendRecv.

    Returns rows of `device_ops` and values of Collective.
    """
    ops = timeline.device_ops
    kernel = np.array([of_kernel(name) or 0 for name in ops.name.values], np.int64)
    called = np.array([of_call(n) if n else 0 for n in ops.collective.values], np.int64)
    if not kernel.any() and not called.any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = np.flatnonzero((kernel[ops.name.codes] > 0) | (called[ops.collective.codes] > 0))
    kind = kernel[ops.name.codes[rows]]
    for told in (_asked(timeline, launches, threads, rows), called[ops.collective.codes[rows]]):
        kind = np.where(told > 0, told, kind)
    return rows, kind


def _asked(timeline: Timeline, launches: Launches, threads: Threads, rows: Int) -> Int:
    """What the annotation around each operation's launch says; 0 where none says anything."""
    ranges = timeline.ranges
    result = np.zeros(len(rows), np.int64)
    says = np.flatnonzero(ranges.name.where(lambda name: bool(_ASKED.match(name))))
    call = launches.of_op[rows]
    if not len(says) or not (call >= 0).any():
        return result
    kinds = np.array([int(of_call(name)) for name in ranges.name.values], np.int64)
    thread = np.where(call >= 0, threads.of_call[np.maximum(call, 0)], -1)
    for number in np.unique(thread[call >= 0]).tolist():
        within = threads.ranges(number)
        at = says[(says >= within.start) & (says < within.stop)]
        mine = np.flatnonzero(thread == number)
        index = IntervalIndex(ranges.start[at], ranges.end[at])
        found = index.innermost(launches.begin[rows[mine]])
        known = found >= 0
        result[mine[known]] = kinds[ranges.name.codes[at[found[known]]]]
    return result
