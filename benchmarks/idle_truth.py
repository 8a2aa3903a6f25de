"""Idle time of a decode loop as tools tell it, beside the truth.

    python benchmarks/idle_truth.py [--steps 250] [--hta PYTHON] [--nsys-ai PYTHON] [-o RESULT.json]

Makes decode traces of 450 short kernels and one read-back a step: with one stream, and with a
second one that works beside it. Each is written as Kineto JSON and as an Nsight Systems export of
the same times. The truth is the span less the union of all device intervals, in whole nanoseconds.
HTA and nsys-ai are installed from PyPI in environments of their own; each reads the format that it
knows, in a process of its own. Prints the table, and writes the figures as JSON where asked.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import venv
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HTA = "HolisticTraceAnalysis==0.5.0"
NSYS_AI = "nsys-ai==0.3.0"
KERNELS = 450
NAMES = [f"void decode_kernel_{n}<float>(float*, int)" for n in range(40)]
BASE_NS = 1_790_000_000_000_000_000
PROCESS, THREAD = 4000, 4000


@dataclass(frozen=True, slots=True)
class Row:
    """An operation or a call; times in ns from the recording's base."""

    name: str
    start: int
    end: int
    correlation: int
    stream: int = 7


@dataclass(slots=True)
class Loop:
    """What a decode loop did."""

    kernels: list[Row] = field(default_factory=list)
    copies: list[Row] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    syncs: list[Row] = field(default_factory=list)

    @property
    def device(self) -> list[Row]:
        return self.kernels + self.copies

    def idle_ns(self) -> int:
        """The span less the union of what ran."""
        rows = sorted((row.start, row.end) for row in self.device)
        idle, reach = 0, rows[0][0]
        for start, end in rows:
            idle += max(0, start - reach)
            reach = max(reach, end)
        return idle


def loop(steps: int, *, side: bool) -> Loop:
    """The host launches every 9 to 15 us kernels of 2 to 9 us, then waits for a copy."""
    draw, made = random.Random(92), Loop()
    now, free, beside, number = 1_000_000, 0, 0, 0

    def call(name: str, long: int) -> int:
        nonlocal now, number
        number += 1
        made.calls.append(Row(name, now, now + long, number))
        now += long
        return number

    for _ in range(steps):
        for n in range(KERNELS):
            # One in ten goes to the second stream: longer, so that others run beside it.
            other = side and n % 10 == 5
            begun = now
            launch = call("cudaLaunchKernel", draw.randint(3_000, 5_000))
            start = max(begun + draw.randint(5_500, 7_500), beside if other else free)
            end = start + draw.randint(2_000, 9_000) * (4 if other else 1)
            made.kernels.append(Row(NAMES[n % 40], start, end, launch, 13 if other else 7))
            free, beside = (free, end) if other else (end, beside)
            now = begun + draw.randint(9_000, 15_000)
        begun = now
        copy = call("cudaMemcpyAsync", 4_000)
        start = max(begun + 6_000, free, beside)
        free = start + draw.randint(1_200, 1_800)
        made.copies.append(Row("Memcpy DtoH (Device -> Pinned)", start, free, copy))
        begun = now
        sync = call("cudaStreamSynchronize", max(2_000, free + 2_500 - now))
        made.syncs.append(Row("Stream Sync", begun, now, sync))
        now += draw.randint(300_000, 700_000)
    return made


def write_kineto(made: Loop, path: Path) -> None:
    """As torch.profiler writes it: decimal microseconds, a base, device and runtime rows."""

    def event(row: Row, category: str, pid: int, tid: int, **args: Any) -> str:
        said = json.dumps({"correlation": row.correlation, **args})
        return (
            f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(row.name)}, "pid": {pid}, '
            f'"tid": {tid}, "ts": {_us(row.start)}, "dur": {_us(row.end - row.start)}, '
            f'"args": {said}}}'
        )

    place = {"device": 0, "context": 1}
    events = [event(r, "cuda_runtime", PROCESS, THREAD) for r in made.calls]
    events += [event(r, "kernel", 0, r.stream, stream=r.stream, **place) for r in made.kernels]
    events += [event(r, "gpu_memcpy", 0, r.stream, stream=r.stream, **place) for r in made.copies]
    events += [
        event(r, "cuda_sync", 0, r.stream, stream=r.stream, cuda_sync_kind="Stream Sync", **place)
        for r in made.syncs
    ]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "synthetic"}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
        "baseTimeNanoseconds": BASE_NS,
    }
    body = ",\n".join(events)
    path.write_text(f'{json.dumps(head)[:-1]}, "traceEvents": [\n{body}\n]}}\n')


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


TABLES = {
    "StringIds": "id INTEGER, value TEXT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, busLocation TEXT, totalMemory INTEGER, "
    "memoryBandwidth INTEGER, smCount INTEGER, chipName TEXT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, contextId "
    "INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, "
    "shortName INTEGER, mangledName INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY "
    "INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory "
    "INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, contextId "
    "INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind "
    "INTEGER, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid "
    "INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER, end INTEGER, deviceId INTEGER, "
    "contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType "
    "INTEGER, eventId INTEGER",
}
"""Columns as in schema 3.16."""


def write_nsys(made: Loop, path: Path) -> None:
    """The tables that `nsys export --type sqlite` makes of such a run."""
    process = (1 << 48) + (PROCESS << 24)
    texts = list(dict.fromkeys(row.name for row in made.calls + made.kernels))
    codes = {text: n for n, text in enumerate(texts, 1)}

    def place(row: Row) -> dict[str, int]:
        return {
            "start": row.start,
            "end": row.end,
            "deviceId": 0,
            "contextId": 1,
            "streamId": row.stream,
            "correlationId": row.correlation,
            "globalPid": process,
        }

    def kernel(row: Row) -> dict[str, int]:
        names = dict.fromkeys(["demangledName", "shortName", "mangledName"], codes[row.name])
        shape = {"gridX": 132, "gridY": 1, "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1}
        return place(row) | names | shape | {"registersPerThread": 64}

    def runtime(row: Row) -> dict[str, int]:
        return {
            "start": row.start,
            "end": row.end,
            "eventClass": 0,
            "globalTid": process + THREAD,
            "correlationId": row.correlation,
            "nameId": codes[row.name],
            "returnValue": 0,
        }

    copy = {"bytes": 8, "copyKind": 2, "srcKind": 2, "dstKind": 1}
    rows: dict[str, list[dict[str, Any]]] = {
        "StringIds": [{"id": n, "value": text} for text, n in codes.items()],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.16.1"}],
        "TARGET_INFO_GPU": [{"id": 0, "name": "synthetic", "smCount": 132, "totalMemory": 1 << 36}],
        "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 0, "cudaId": 0, "pid": PROCESS}],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(r) for r in made.kernels],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [place(r) | copy for r in made.copies],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [runtime(r) for r in made.calls],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [place(r) | {"syncType": 3} for r in made.syncs],
    }
    with closing(sqlite3.connect(path)) as db:
        for table, columns in TABLES.items():
            names = [column.split()[0] for column in columns.split(", ")]
            db.execute(f"CREATE TABLE {table} ({columns})")
            marks = ", ".join("?" * len(names))
            db.executemany(
                f"INSERT INTO {table} VALUES ({marks})",
                ([row.get(name) for name in names] for row in rows[table]),
            )
        db.commit()


OURS = """
import json, sys
from pathlib import Path
from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
found = diagnose(load(Path(sys.argv[1])))
print(json.dumps({"idle_ns": found.total("idle_ns"), "unknown_ns": found.total("unknown_ns")}))
"""

THEIRS = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
idle, _ = analysis.get_idle_time_breakdown(visualize=False)
print(json.dumps({"idle_ns": round(1000 * float(idle["idle_time"].sum()))}))
"""


def told(words: list[Any], **environment: str) -> Any:
    """What a tool prints as JSON; its last line, or all of it."""
    done = subprocess.run(
        list(map(str, words)),
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return json.loads(done.stdout.strip().splitlines()[-1])


def answers(kineto: Path, nsys: Path, hta: Path, nsys_ai: Path) -> dict[str, float]:
    """Idle ns by each tool and setting."""
    found: dict[str, float] = {}
    for name, path in (("Kineto JSON", kineto), ("nsys SQLite", nsys)):
        said = told([sys.executable, "-c", OURS, path])
        if said["unknown_ns"]:
            raise SystemExit(f"{name}: {said['unknown_ns']} ns are unknown, and none should be")
        found[f"bubblescope, {name}"] = said["idle_ns"]
    for name, off in (("as installed", "0"), ("HTA_DISABLE_NS_ROUNDING=1", "1")):
        said = told([hta, "-c", THEIRS, kineto], HTA_DISABLE_NS_ROUNDING=off)
        found[f"HTA, {name}"] = said["idle_ns"]

    def skill(*words: str) -> Any:
        copy = nsys.with_name(f"copy-{nsys.name}")  # it writes into the file that it reads
        shutil.copyfile(nsys, copy)
        ask = [nsys_ai, "-m", "nsys_ai", "skill", "run", *words, copy, "--format", "json"]
        try:
            return told([*ask, "--no-cache"])
        finally:
            copy.unlink()

    for name, words in (
        ("gpu_idle_gaps", ["gpu_idle_gaps"]),
        ("gpu_idle_gaps, min_gap_ns=0", ["gpu_idle_gaps", "-p", "min_gap_ns=0"]),
    ):
        summary = next(row for row in skill(*words) if row.get("_summary"))
        found[f"nsys-ai, {name}"] = 1e6 * summary["total_idle_ms"]
        if summary.get("device_idle_ms") is not None:
            found[f"nsys-ai, {name}: device_idle_ms"] = 1e6 * summary["device_idle_ms"]
    rows = skill("pipeline_bubble_metrics")
    found["nsys-ai, pipeline_bubble_metrics"] = 1e6 * sum(row["bubble_ms"] for row in rows)
    return found


def installed(folder: Path, what: str) -> Path:
    """The Python of an environment of its own that has a package."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", what], check=True, stderr=sys.stderr)
    return python


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    traces = result["traces"]
    lines = [
        f"| | {' | '.join(f'{name}: idle ms | off' for name in traces)} |",
        f"|---|{'---:|---:|' * len(traces)}",
    ]
    for tool in ["truth", *next(iter(traces.values()))["told_ns"]]:
        cells = []
        for trace in traces.values():
            truth = trace["truth_ns"]
            idle = truth if tool == "truth" else trace["told_ns"][tool]
            cells.append(f"{idle / 1e6:,.3f} | {100 * (idle / truth - 1):+.2f} %")
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--hta", type=Path, help="python of an environment that has HTA already")
    parser.add_argument("--nsys-ai", type=Path, help="the same of nsys-ai")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "command": f"python benchmarks/idle_truth.py --steps {arguments.steps}",
        "versions": {"python": platform.python_version(), "tools": [HTA, NSYS_AI]},
        "traces": {},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hta = arguments.hta or installed(folder / "hta", HTA)
        nsys_ai = arguments.nsys_ai or installed(folder / "nsys-ai", NSYS_AI)
        for number, (title, side) in enumerate({"one stream": False, "two streams": True}.items()):
            made = loop(arguments.steps, side=side)
            kineto, nsys = folder / f"{number}.json", folder / f"{number}.sqlite"
            write_kineto(made, kineto)
            write_nsys(made, nsys)
            result["traces"][title] = {
                "operations": len(made.device),
                "megabytes_kineto": round(kineto.stat().st_size / 1e6, 1),
                "megabytes_nsys": round(nsys.stat().st_size / 1e6, 1),
                "truth_ns": made.idle_ns(),
                "told_ns": answers(kineto, nsys, hta, nsys_ai),
            }
    print(table(result))
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
