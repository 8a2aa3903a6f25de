"""Where rows of an Nsight Systems export belong: process and thread, rank and device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.ingest.sqlite import NULL, Database
from bubblescope.timeline.tables import Int

# A global id is (host, virtual machine, process, thread) in one integer.
_BITS = 24
_MASK = (1 << _BITS) - 1


def process_part(global_id: Int) -> Int:
    """All of a global id but its thread, NULL where there is no id."""
    return np.where(global_id == NULL, NULL, global_id >> _BITS)


def paired(first: Int, second: Int) -> Int:
    """One number for each pair, equal for equal pairs; shape (rows,)."""
    if not len(first):
        return first
    low, high = int(second.min()), int(second.max())
    number = np.unique(first, return_inverse=True)[1].astype(np.int64).reshape(-1)
    if high - low >= 1 << 40:  # NULL among ids, or ids as large as hashes
        second = np.unique(second, return_inverse=True)[1].astype(np.int64).reshape(-1)
        low, high = 0, len(second)
    return number * (high - low + 1) + (second - low)


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """What process parts of global ids mean.

    parts: every process part that occurs, rising. process, rank: of each.
    physical: (process, CUDA device) to the number of the GPU in the machine, where recorded.
    shared: devices that several processes name, where the export does not say which GPUs these are.
    """

    parts: Int
    process: Int
    rank: Int
    physical: dict[tuple[int, int], int]
    shared: tuple[int, ...]

    def processes(self, part: Int) -> Int:
        """The process of each process part; -1 where that is NULL."""
        return self._of(self.process, part, -1)

    def ranks(self, part: Int) -> Int:
        """The rank of each process part; the first where that is NULL."""
        return self._of(self.rank, part, int(self.rank.min()) if len(self.rank) else 0)

    def devices(self, process: Int, device: Int) -> Int:
        """The GPU of each (process, CUDA device); the device itself where that is not recorded."""
        result = np.where(device == NULL, 0, device)
        for (owner, number), gpu in self.physical.items():
            result[(process == owner) & (device == number)] = gpu
        return result

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return int(self.rank.max()) + 1 if len(self.rank) else 1

    def _of(self, values: Int, part: Int, absent: int) -> Int:
        result = np.full(len(part), absent, np.int64)
        known = part != NULL
        result[known] = values[np.searchsorted(self.parts, part[known])]
        return result


def threads(global_id: Int) -> Int:
    """The thread of each global id; -1 where there is none."""
    return np.where(global_id == NULL, -1, global_id & _MASK)


def find(database: Database, parts: Int, working: Int, device: Int) -> Places:
    """What the export says of its processes.

    Each process that works on GPUs of its own is a rank: as MPI numbered them, where that was
    traced, else in the order of their devices. Processes that share a GPU are one rank.

    Args:
        database: The export.
        parts: Process parts of all global ids that occur; NULL among them or not.
        working: The process part of each device operation.
        device: The CUDA device of each device operation.
    """
    parts = np.unique(parts[parts != NULL])
    process = parts & _MASK
    # Process ids of several machines in one report may be the same.
    number, count = np.unique(process, return_counts=True)
    process = np.where(np.isin(process, number[count > 1]), parts, process)
    physical = _physical(database)
    known = np.flatnonzero(working != NULL)
    one = known[np.unique(paired(working[known], device[known]), return_index=True)[1]]
    pairs = np.stack([working[one], device[one]], axis=1)
    owners = process[np.searchsorted(parts, pairs[:, 0])]
    places = Places(parts, process, np.zeros(len(parts), np.int64), physical, ())
    gpus = places.devices(owners, pairs[:, 1])
    used, by = np.unique(np.unique(np.stack([gpus, owners], 1), axis=0)[:, 0], return_counts=True)
    shared = np.isin(gpus, used[by > 1])
    named = zip(owners.tolist(), pairs[:, 1].tolist(), strict=True)
    said = np.fromiter((pair in physical for pair in named), np.bool_, len(pairs))
    unsaid = np.unique(gpus[shared & ~said])
    rank = np.zeros(len(parts), np.int64)
    mpi = _mpi_ranks(database, parts)
    if len(mpi) and not (shared & said).any():
        rank, unsaid = mpi, unsaid[:0]
    elif not shared.any():
        by_gpu = pairs[np.argsort(gpus, kind="stable"), 0]
        _, first = np.unique(by_gpu, return_index=True)
        rank[np.searchsorted(parts, by_gpu[np.sort(first)])] = np.arange(len(first))
    return Places(parts, process, rank, physical, tuple(unsaid.tolist()))


def _physical(database: Database) -> dict[tuple[int, int], int]:
    columns = database.integers("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
    return {
        (pid, cuda): gpu
        for pid, cuda, gpu in zip(*(c.tolist() for c in columns), strict=True)
        if NULL not in (pid, cuda, gpu)
    }


def _mpi_ranks(database: Database, parts: Int) -> Int:
    """The MPI rank of each process part, 0 for those outside; no rows where MPI was not traced."""
    global_id, number = database.integers("MPI_RANKS", "globalTid", "rank")
    good = (global_id != NULL) & (number >= 0)
    if not good.any():
        return np.zeros(0, np.int64)
    rank = np.zeros(len(parts), np.int64)
    owner = process_part(global_id[good])
    for part, of in zip(owner.tolist(), number[good].tolist(), strict=True):
        rank[parts == part] = of
    return rank
