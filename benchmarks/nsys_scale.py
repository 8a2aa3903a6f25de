"""How long an Nsight Systems export takes to read and to diagnose.

    python benchmarks/nsys_scale.py [--kernels 450000] [--rounds 3] [-o RESULT.json]

Makes two exports with the columns of schema 3.20: an eager decode loop (450 launches a step, a
copy and a synchronise at its end, NVTX ranges around) and the same kernels as nodes of one graph
replay a step. Each round reads and diagnoses each file in a process of its own, imports included;
cpu_s is the processor time of that, which other work on the machine changes little. The busy time
is checked against SQLite's own sum. Prints what each took, and writes it as JSON where asked.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

PROCESS = (1 << 48) + (4000 << 24)
A_STEP = 450
NAMES = 40

TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId contextId greenContextId streamId "
    "correlationId globalPid demangledName shortName mangledName launchType cacheConfig "
    "registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory "
    "dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted "
    "graphNodeId sharedMemoryLimitConfig",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId contextId streamId correlationId globalPid "
    "bytes copyKind srcKind dstKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId "
    "returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start end deviceId contextId streamId correlationId "
    "globalPid syncType eventId eventSyncId",
    "NVTX_EVENTS": "start end eventType rangeId text globalTid textId domainId",
}
"""Columns of the tables, as schema 3.20 has them."""

MEASURE = """
import json, resource, sys, time
began = time.perf_counter()
from pathlib import Path
from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
timeline = load(Path(sys.argv[1]))
loaded = time.perf_counter()
found = diagnose(timeline)
done = time.perf_counter()
print(json.dumps({
    "load_s": loaded - began,
    "total_s": done - began,
    "cpu_s": time.process_time(),
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "busy_ns": found.total("busy_ns"),
    "steps": int(found.steps.whole.sum()),
}))
"""


def export(path: Path, kernels: int, graphs: bool) -> None:
    """Write an export of a decode loop; kernels of one stream follow each other without overlap."""
    rng = np.random.default_rng(11)
    steps = kernels // A_STEP
    run = rng.integers(1_000, 7_000, (steps, A_STEP))
    pause = rng.integers(300, 3_000, (steps, A_STEP))
    pause[:, 0] = 200_000  # the host prepares the step
    end = np.cumsum((run + pause).reshape(-1)) + np.repeat(np.arange(steps) * 20_000, A_STEP)
    start = end - run.reshape(-1)
    names = np.arange(kernels) % A_STEP % NAMES + 10
    first, last = start[::A_STEP], end[A_STEP - 1 :: A_STEP]
    step = np.arange(steps)
    correlation = np.repeat(step, A_STEP) + 1 if graphs else np.arange(kernels) + 1
    launch = first - 8_000 if graphs else start - 5_000
    base = kernels + 1
    with closing(sqlite3.connect(path)) as db:
        strings = {1: "cudaGraphLaunch_v10000" if graphs else "cudaLaunchKernel_v7000"}
        strings |= {2: "cudaMemcpyAsync_v3020", 3: "cudaStreamSynchronize_v3020", 4: "step"}
        strings |= {10 + n: f"void kernel_{n}<float, {n}>(float*, int)" for n in range(NAMES)}
        _table(db, "StringIds", ["id", "value"])
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", strings.items())
        _table(db, "META_DATA_EXPORT", ["name", "value"])
        db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.2')")
        node = np.arange(kernels) % A_STEP + (7 << 32) if graphs else None
        _rows(
            db, "CUPTI_ACTIVITY_KIND_KERNEL", kernels,
            start=start, end=end, deviceId=0, contextId=1, streamId=7, correlationId=correlation,
            globalPid=PROCESS, demangledName=names, shortName=names, mangledName=names,
            registersPerThread=64, gridX=132, blockX=256, graphNodeId=node,
        )  # fmt: skip
        copy = last + 1_000
        _rows(
            db, "CUPTI_ACTIVITY_KIND_MEMCPY", steps,
            start=copy, end=copy + 2_000, deviceId=0, contextId=1, streamId=7,
            correlationId=base + 2 * step, globalPid=PROCESS, bytes=8, copyKind=2, srcKind=2,
            dstKind=1,
        )  # fmt: skip
        begun = np.concatenate([launch, last - 3_000, last - 1_000])
        took = np.repeat([4_000, 2_000, 5_000], [len(launch), steps, steps])
        ids = np.concatenate([np.unique(correlation), base + 2 * step, base + 2 * step + 1])
        kind = np.repeat([1, 2, 3], [len(launch), steps, steps])
        _rows(
            db, "CUPTI_ACTIVITY_KIND_RUNTIME", len(begun),
            start=begun, end=begun + took, eventClass=0, globalTid=PROCESS + 4000,
            correlationId=ids, nameId=kind, returnValue=0,
        )  # fmt: skip
        _rows(
            db, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", steps,
            start=last - 900, end=last + 3_900, deviceId=0, contextId=1, streamId=7,
            correlationId=base + 2 * step + 1, globalPid=PROCESS, syncType=3,
        )  # fmt: skip
        _rows(
            db, "NVTX_EVENTS", steps,
            start=first - 100_000, end=last + 5_000, eventType=59, globalTid=PROCESS + 4000,
            textId=4, domainId=0,
        )  # fmt: skip
        db.commit()


def _table(db: sqlite3.Connection, name: str, columns: list[str]) -> None:
    db.execute(f"CREATE TABLE {name} ({', '.join(columns)})")


def _rows(db: sqlite3.Connection, table: str, rows: int, **given: Any) -> None:
    """Make a table; the columns that are not given are NULL."""
    columns = TABLES[table].split()
    _table(db, table, [f"{c} INTEGER" for c in columns])
    values = [
        given[c].tolist() if isinstance(given.get(c), np.ndarray) else [given.get(c)] * rows
        for c in columns
    ]
    marks = ", ".join("?" * len(columns))
    db.executemany(f"INSERT INTO {table} VALUES ({marks})", zip(*values, strict=True))


def busy(path: Path) -> int:
    """The sum of all durations: nothing overlaps here."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        tables = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY")
        return sum(db.execute(f"SELECT sum(end - start) FROM {t}").fetchone()[0] for t in tables)


def measured(path: Path) -> dict[str, float]:
    """What one process reports."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, path], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", type=int, default=450_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "command": f"python benchmarks/nsys_scale.py --kernels {arguments.kernels} "
        f"--rounds {arguments.rounds}",
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "load_average": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "sqlite": sqlite3.sqlite_version,
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("eager", "graph"):
            path = Path(folder) / f"{kind}.sqlite"
            export(path, arguments.kernels, kind == "graph")
            runs = [measured(path) for _ in range(arguments.rounds)]
            if {run["busy_ns"] for run in runs} != {busy(path)}:
                raise SystemExit(f"{kind}: busy is {runs[0]['busy_ns']} ns, not {busy(path)}")
            result[kind] = {
                "megabytes": round(path.stat().st_size / 1e6, 1),
                "kernels": arguments.kernels,
                "whole_steps": runs[0]["steps"],
                "load_s": round(statistics.median(r["load_s"] for r in runs), 2),
                "total_s": round(statistics.median(r["total_s"] for r in runs), 2),
                "rounds_s": [round(r["total_s"], 2) for r in runs],
                "cpu_s": round(statistics.median(r["cpu_s"] for r in runs), 2),
                "peak_megabytes": round(max(r["peak_bytes"] for r in runs) / 1e6),
                "busy_ns": runs[0]["busy_ns"],
            }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
