"""What to say of a SQLite file that holds nothing to diagnose."""

from __future__ import annotations

from pathlib import Path

from bubblescope.errors import BubblescopeError
from bubblescope.ingest import nsys_calls, nsys_device, nsys_ranges
from bubblescope.ingest.source import refusal
from bubblescope.ingest.sqlite import Database
from bubblescope.timeline.api import is_graph_launch, is_kernel_launch

_OF_NSYS = {
    *nsys_device.TABLES,
    *nsys_calls.TABLES,
    nsys_ranges.NVTX,
    "StringIds",
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
    "TARGET_INFO_SYSTEM_ENV",
}
_RECORD = "record again with nsys profile --trace=cuda,nvtx"


def stranger(path: Path, database: Database) -> BubblescopeError | None:
    """Why it is no Nsight Systems export; None where it is one."""
    tables = database.tables
    if "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL" in database or "StringTable" in database:
        return refusal(path, "is a database of nvprof or the Visual Profiler", _RECORD)
    if any(table in database for table in _OF_NSYS):
        return None
    listed = f"it has {', '.join(tables[:5])}" if tables else "it has no table"
    return refusal(
        path,
        f"is an SQLite file, but no Nsight Systems export: {listed}",
        "make one with nsys export --type sqlite",
    )


def no_device_ops(path: Path, database: Database, calls: nsys_calls.Calls) -> BubblescopeError:
    """No device operation with a time: unknown what the device did, never idle."""
    dropped = sum(database.count(table) for table in nsys_device.TABLES)
    if dropped:
        return refusal(
            path,
            f"none of its {dropped:,} device operations has a time that can be true",
            "export or record it again",
        )
    names = calls.table.name
    launches = int(names.where(lambda n: is_kernel_launch(n) or is_graph_launch(n)).sum())
    if launches:
        return refusal(
            path,
            f"{_many(launches, 'launch', 'launches')}, no GPU record: the capture lost the GPU "
            "side",
            "let the program end by itself or call cudaProfilerStop, and check the permissions to "
            "profile; a child that was forked after CUDA began is not traced",
        )
    if len(names):
        return refusal(
            path,
            f"{_many(len(names), 'CUDA call')}, none of them a launch, no GPU record: nothing ran "
            "on the GPU inside the capture",
            "record the work itself",
        )
    ranges = database.count(nsys_ranges.NVTX)
    return refusal(
        path,
        f"recorded without the CUDA trace: {_many(ranges, 'NVTX event')}, no CUDA call, no device "
        "operation",
        _RECORD,
    )


def _many(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
