"""Load and diagnosis beside HTA 0.5.0's load and idle breakdown, on one file, in one go.

    python benchmarks/ingest.py TRACE.json[.gz] [--megabytes 300] [--rounds 3] [-o RESULT.json]

The trace is repeated to the size asked for, each copy later by the length of the one before and
with correlation ids of its own, so that the file is one long recording. Holistic Trace Analysis is
installed from PyPI in an environment of its own. Each tool reads the file in a process of its own,
by turns; times are without imports. Prints what each took, and writes it as JSON where asked.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import venv
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

HTA = "HolisticTraceAnalysis==0.5.0"

OURS = """
import json, resource, sys, time
from pathlib import Path
from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
began, cpu = time.perf_counter(), time.process_time()
timeline = load(Path(sys.argv[1]))
loaded = time.perf_counter()
found = diagnose(timeline)
done = time.perf_counter()
print(json.dumps({
    "load_s": loaded - began,
    "total_s": done - began,
    "cpu_s": time.process_time() - cpu,
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "idle_ns": found.total("idle_ns"),
    "operations": found.devices[0].operations,
}))
"""

THEIRS = """
import json, logging, resource, sys, time
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
began, cpu = time.perf_counter(), time.process_time()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
loaded = time.perf_counter()
idle, _ = analysis.get_idle_time_breakdown(visualize=False)
done = time.perf_counter()
usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "load_s": loaded - began,
    "total_s": done - began,
    "cpu_s": sum(u.ru_utime + u.ru_stime for u in usage) - cpu,
    "peak_bytes": max(u.ru_maxrss for u in usage) * 1024,
    "idle_ns": int(1000 * idle["idle_time"].sum()),
    "rows": len(idle),
}))
"""


def shifted(event: dict[str, Any], by: Decimal, ids: int) -> str:
    """One event later by `by` us, its correlation ids larger by `ids`; "@" marks plain text."""
    event = dict(event)
    if "ts" in event:
        event["ts"] = f"@{event['ts'] + by}@"
    if "dur" in event:
        event["dur"] = f"@{event['dur']}@"
    args = event.get("args")
    if isinstance(args, dict):
        event["args"] = {
            name: value + ids
            if name in ("correlation", "wait_on_cuda_event_record_corr_id") and value >= 0
            else value
            for name, value in args.items()
        }
    if event.get("cat") == "ac2g":
        event["id"] += ids
    return json.dumps(event, default=float).replace('"@', "").replace('@"', "")


def repeated(source: Path, to: Path, *, megabytes: float = 0, events: int = 0) -> int:
    """Write the trace so many times over that it is as large as asked for; events written."""
    raw = source.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    document = json.loads(text, parse_float=Decimal)
    every = document.pop("traceEvents")
    spans = [e for e in every if e.get("ph") == "X" and e.get("cat") != "Trace"]
    rest = [e for e in every if e.get("ph") == "M"]
    flows = [e for e in every if e.get("cat") == "ac2g"]
    first = min(e["ts"] for e in spans)
    length = max(e["ts"] + e["dur"] for e in spans) - first + 100
    most = max(e.get("args", {}).get("correlation", 0) for e in spans) + 1
    written = size = 0
    with to.open("w") as out:
        out.write(json.dumps(document, default=float)[:-1] + ', "traceEvents": [\n')
        out.write(",\n".join(json.dumps(e, default=float) for e in rest))
        copies = 0
        while size < megabytes * 1_000_000 or written < events:
            piece = ",\n".join(shifted(e, copies * length, copies * most) for e in spans + flows)
            out.write(f",\n{piece}")
            size += len(piece)
            written += len(spans) + len(flows)
            copies += 1
        out.write("\n]}\n")
    return written + len(rest)


def installed(folder: Path) -> Path:
    """The Python of an environment of its own that has HTA."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", HTA], check=True, stderr=sys.stderr)
    return python


def machine() -> dict[str, Any]:
    """What the figures were measured on, and how busy it was with other things."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": (model or [platform.machine()])[0],
        "cores": len(os.sched_getaffinity(0)),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "python": platform.python_version(),
        "versions": {n: version(n) for n in ("bubblescope", "msgspec", "numpy", "pyarrow")},
    }


def measured(python: Path | str, program: str, file: Path) -> dict[str, float]:
    """What one process reports."""
    done = subprocess.run([python, "-c", program, file], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def summary(runs: list[dict[str, float]], size: int) -> dict[str, Any]:
    """Medians over the rounds."""
    total = statistics.median(r["total_s"] for r in runs)
    peak = max(r["peak_bytes"] for r in runs)
    return {
        "load_s": round(statistics.median(r["load_s"] for r in runs), 2),
        "total_s": round(total, 2),
        "rounds_s": [round(r["total_s"], 2) for r in runs],
        "cpu_s": round(statistics.median(r["cpu_s"] for r in runs), 2),
        "megabytes_per_s": round(size / 1e6 / total, 1),
        "peak_megabytes": round(peak / 1e6),
        "peak_memory_per_file": round(peak / size, 2),
        "idle_ms": round(runs[0]["idle_ns"] / 1e6, 3),  # HTA: the sum over streams
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta", type=Path, help="python of an environment that has HTA already")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "large.json"
        events = repeated(arguments.trace, file, megabytes=arguments.megabytes)
        size = file.stat().st_size
        python = arguments.hta or installed(folder / "hta")
        ours, theirs = [], []
        for _ in range(arguments.rounds):  # by turns, so that both see the same machine
            ours.append(measured(sys.executable, OURS, file))
            theirs.append(measured(python, THEIRS, file))
    mine, other = summary(ours, size), summary(theirs, size)
    result = {
        "command": f"python benchmarks/ingest.py {arguments.trace.name} "
        f"--megabytes {arguments.megabytes} --rounds {arguments.rounds}",
        "trace": arguments.trace.name,
        "megabytes": round(size / 1e6, 1),
        "events": events,
        "bubblescope": mine,
        HTA: other,
        "times_faster": round(other["total_s"] / mine["total_s"], 1),
        "times_less_cpu": round(other["cpu_s"] / mine["cpu_s"], 1),
        "machine": machine(),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
