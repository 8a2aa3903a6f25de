"""Time per event and memory of load and diagnosis, from short recordings to very long ones.

    python benchmarks/flatness.py TRACE.json[.gz] [--events 100000 1000000 ...] [-o RESULT.json]

The trace is repeated to each size as benchmarks/ingest.py does. Each is read and diagnosed in a
process of its own, the shorter ones several times. Prints a table, and writes it as JSON where
asked. Ten million events need 3 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ingest import machine, repeated

MEASURE = """
import json, resource, sys, time
from pathlib import Path
from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
diagnose(load(Path(sys.argv[2])))  # what is imported when it is first used
began, cpu = time.perf_counter(), time.process_time()
timeline = load(Path(sys.argv[1]))
loaded, loaded_cpu = time.perf_counter(), time.process_time()
loading = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
found = diagnose(timeline)
done, done_cpu = time.perf_counter(), time.process_time()
print(json.dumps({
    "load_s": loaded - began,
    "diagnose_s": done - loaded,
    "load_cpu_s": loaded_cpu - cpu,
    "diagnose_cpu_s": done_cpu - loaded_cpu,
    "load_peak_bytes": loading,
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "operations": len(timeline.device_ops),
}))
"""


def point(trace: Path, events: int, folder: Path) -> dict[str, Any]:
    """One size: medians over the rounds."""
    file = folder / "long.json"
    written = repeated(trace, file, events=events)
    size = file.stat().st_size
    rounds = 5 if size < 1e8 else 3 if size < 1e9 else 1
    runs = []
    for _ in range(rounds):
        words = [sys.executable, "-c", MEASURE, file, trace]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
    file.unlink()
    names = ("load_s", "diagnose_s", "load_cpu_s", "diagnose_cpu_s")
    medians = {name: statistics.median(r[name] for r in runs) for name in names}
    load, diagnosis, load_cpu, diagnosis_cpu = medians.values()
    return {
        "events": written,
        "operations": runs[0]["operations"],
        "megabytes": round(size / 1e6, 1),
        "rounds": rounds,
        **{name: round(seconds, 3) for name, seconds in medians.items()},
        "load_ns_per_event": round(1e9 * load / written),
        "load_cpu_ns_per_event": round(1e9 * load_cpu / written),
        "diagnose_ns_per_event": round(1e9 * diagnosis / written),
        "diagnose_cpu_ns_per_event": round(1e9 * diagnosis_cpu / written),
        "megabytes_per_s": round(size / 1e6 / (load + diagnosis), 1),
        "megabytes_per_cpu_s": round(size / 1e6 / (load_cpu + diagnosis_cpu), 1),
        "load_peak_megabytes": round(max(r["load_peak_bytes"] for r in runs) / 1e6),
        "peak_megabytes": round(max(r["peak_bytes"] for r in runs) / 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--events", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    points = []
    print("                         ns an event, wall (CPU)")
    print("    events       MB            load        diagnosis     MB/s (CPU)   peak MB")
    with tempfile.TemporaryDirectory() as name:
        for events in arguments.events:
            p = point(arguments.trace, events, Path(name))
            points.append(p)
            print(
                f"{p['events']:>10,} {p['megabytes']:>8,} "
                f"{p['load_ns_per_event']:>7,} ({p['load_cpu_ns_per_event']:>6,}) "
                f"{p['diagnose_ns_per_event']:>7,} ({p['diagnose_cpu_ns_per_event']:>6,}) "
                f"{p['megabytes_per_s']:>6} ({p['megabytes_per_cpu_s']:>6}) "
                f"{p['peak_megabytes']:>9,}",
                flush=True,
            )
    if arguments.output:
        words = " ".join(map(str, arguments.events))
        result = {
            "command": f"python benchmarks/flatness.py {arguments.trace.name} --events {words}",
            "machine": machine(),
            "points": points,
        }
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
