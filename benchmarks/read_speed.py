"""Load and full diagnosis of a Kineto trace: MB of JSON a second, and peak memory.

    python benchmarks/read_speed.py TRACE.json[.gz] [--megabytes 240]

The trace is repeated to the size asked for (events as they are, so ids and times repeat too), then
read in a process of its own. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

MEASURE = """
import json, resource, sys, time
from pathlib import Path
from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
path = Path(sys.argv[1])
began = time.perf_counter()
timeline = load(path)
loaded = time.perf_counter()
diagnose(timeline)
done = time.perf_counter()
size = path.stat().st_size
print(json.dumps({
    "megabytes": round(size / 1e6, 1),
    "load_mb_per_s": round(size / 1e6 / (loaded - began), 1),
    "load_and_diagnose_mb_per_s": round(size / 1e6 / (done - began), 1),
    "peak_memory_per_file": round(
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / size, 2
    ),
}))
"""


def repeated(source: Path, megabytes: int, to: Path) -> None:
    """Write the trace with its events repeated until it is as large as asked for."""
    raw = source.read_bytes()
    document = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    events = json.dumps(document.pop("traceEvents"))[1:-1]
    head = json.dumps(document)[:-1]
    with to.open("w") as out:
        out.write(f'{head}, "traceEvents": [{events}')
        for _ in range(megabytes * 1_000_000 // len(events) - 1):
            out.write(f",\n{events}")
        out.write("]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--megabytes", type=int, default=240)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.json"
        repeated(arguments.trace, arguments.megabytes, large)
        subprocess.run([sys.executable, "-c", MEASURE, str(large)], check=True)


if __name__ == "__main__":
    main()
