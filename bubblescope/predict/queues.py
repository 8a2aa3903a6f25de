"""Device queues as chains: the operations of a stream in order, by their ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.launches import Launches
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import Mask, runs
from bubblescope.timeline.tables import Int


@dataclass(frozen=True, slots=True, eq=False)
class Queues:
    """The operations of each (process, device, stream), in order of their starts.

    An operation is a link of the chain if it ends no earlier than all before it. What ends earlier
    ran beside a link, and is moved with it.

    of_op: a small id of the queue of each operation. order: rows of the links, queue by queue.
    length: links of each queue. place: of each operation, its own place in `order`, or that of the
    link that it ran beside. before: the link before, a row of `device_ops`, -1 for the first.
    beside: not a link. overlaps: a link that began before the one before it ended (PDL).
    """

    of_op: Int
    order: Int
    length: Int
    place: Int
    before: Int
    beside: Mask
    overlaps: Mask


def queues(timeline: Timeline, launches: Launches, start: Int, end: Int) -> Queues:
    """The queues of a recording. start, end: of the operations, on the host's clock."""
    ops = timeline.device_ops
    rows = len(ops)
    owner = launches.op_owner
    by_queue = np.lexsort((np.arange(rows), ops.stream, owner, ops.device, ops.rank))
    first, length = runs(
        ops.rank[by_queue], ops.device[by_queue], owner[by_queue], ops.stream[by_queue]
    )
    of_op = np.empty(rows, np.int64)
    of_op[by_queue] = np.repeat(np.arange(len(first)), length)
    ends = end[by_queue]
    reach = ends.copy()
    for f, n in zip(first.tolist(), length.tolist(), strict=True):  # queues
        np.maximum.accumulate(ends[f : f + n], out=reach[f : f + n])
    link = ends == reach
    number = np.cumsum(link) - 1
    place = np.empty(rows, np.int64)
    place[by_queue] = number
    order = by_queue[link]
    before = np.full(rows, -1, np.int64)
    before[order[1:]] = np.where(of_op[order[1:]] == of_op[order[:-1]], order[:-1], -1)
    beside = np.empty(rows, np.bool_)
    beside[by_queue] = ~link
    overlaps = np.zeros(rows, np.bool_)
    chained = before >= 0
    overlaps[chained] = start[chained] < end[before[chained]]
    return Queues(
        of_op,
        order,
        np.bincount(of_op[order], minlength=len(first)),
        place,
        before,
        beside,
        overlaps,
    )
