"""One rank of a Timeline that holds several."""

from __future__ import annotations

from typing import cast

import msgspec
import numpy as np

from bubblescope.errors import BubblescopeError
from bubblescope.timeline.tables import Health, Table
from bubblescope.timeline.timeline import Timeline


def only(timeline: Timeline, rank: int) -> Timeline:
    """The rows of one rank; notes on the recording as a whole (rank -1) stay.

    Raises:
        BubblescopeError: no device operation is that rank's.
    """
    have = np.unique(timeline.device_ops.rank).tolist()
    if rank not in have:
        listed = ", ".join(map(str, have[:16])) + (", ..." if len(have) > 16 else "")
        raise BubblescopeError(f"--rank {rank}: no such rank; the recording has {listed or 'none'}")
    if len(have) == 1:
        return timeline
    tables: dict[str, Table] = {}
    for name, table in timeline.tables().items():
        of = getattr(table, "rank", None)  # frames are of all ranks
        if isinstance(table, Health):
            tables[name] = table.take((table.rank == rank) | (table.rank < 0))
        else:
            tables[name] = table if of is None else table.take(cast(np.ndarray, of) == rank)
    meta = msgspec.structs.replace(
        timeline.meta,
        devices=tuple(d for d in timeline.meta.devices if d.rank == rank),
        threads=tuple(t for t in timeline.meta.threads if t.rank == rank),
    )
    return Timeline.of(meta, **tables)
