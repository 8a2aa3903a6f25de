"""SGLang's decode step with and without the read-back, and what recording it costs.

    python benchmarks/sglang_windows.py --rounds 5 --out OUT

One engine, started once; all else that SGLang ships is on. In each round, generations alternate
between the pass seq-len-sync off and on and between recorded and not; they are compared over the
same steps, 200 to 209, since steps grow with the sequence. Then a window at node level. Needs one
H200 and an SGLang that runs there. The folder gets the recordings and sglang-windows.json, with
every step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from bubblescope.diagnose import diagnose
from bubblescope.targets.sglang.target import SGLang
from bubblescope.timeline import bscope
from optimizations.registry import applied

STEPS, WARM, FIRST = 200, 40, 200
OTHERS = ["draft-extend-graph", "pdl-chain", "router-moe", "bf16-lm-head"]
"""What SGLang ships besides."""
WAYS: dict[str, list[str]] = {"read-back": OTHERS, "as-shipped": [*OTHERS, "seq-len-sync"]}


def timed(target: SGLang, way: str) -> dict[str, Any]:
    with applied(WAYS[way], target):
        made = target.run(WARM + STEPS)
    steps = [b - a for a, b in pairwise(made.began[WARM:])]
    return {"way": way, "steps_ns": steps, "tokens": made.tokens}


def window(target: SGLang, way: str, level: str, out: Path, number: int) -> dict[str, Any]:
    began = time.monotonic()
    with applied(WAYS[way], target):
        recording = target.record(level, FIRST, 10)
    name = f"sglang-h200-{way}-{level}"
    if number == 0:
        bscope.write(recording.timeline, out / f"{name}.bscope", force=True)
    found = diagnose(recording.timeline, window=recording.window)
    reads = [
        (r.site.file, r.site.line, r.calls, r.blocked_ns_per_step, r.exposed_idle_ns_per_step)
        for r in found.reads
        if r.site is not None
    ]
    lengths = found.steps.length_ns[found.steps.whole]
    return {
        "way": way,
        "level": level,
        "steps_ns": lengths.tolist(),
        "unprofiled_step_ns": recording.timeline.meta.unprofiled_step_ns,
        "reads": reads,
        "findings": [f.title for f in found.findings[:6]],
        "health": [(h.kind, h.count, h.note) for h in found.health],
        "took_s": time.monotonic() - began,
    }


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--engine", action="append", default=[])
    asked.add_argument("--weights", choices=["dummy", "spread"], default="dummy")
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--commit", default="")
    options = asked.parse_args()
    target = SGLang(as_shipped=False, engine=tuple(options.engine), weights=options.weights)
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "commit": options.commit,
        "gpu": subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip(),
        "rounds": [],
        "windows": [],
    }

    def save() -> None:
        (options.out / "sglang-windows.json").write_text(json.dumps(result))

    began = time.monotonic()
    try:
        target.start()
        result["start_s"] = time.monotonic() - began
        result["about"] = target.about()
        print(f"up after {result['start_s']:.0f} s", flush=True)
        for number in range(options.rounds):
            for way in list(WAYS) if number % 2 == 0 else list(WAYS)[::-1]:
                made = timed(target, way)
                result["rounds"].append({"round": number, **made})
                graph = window(target, way, "graph", options.out, number)
                result["windows"].append({"round": number, **graph})
                save()
                plain = statistics.mean(made["steps_ns"][FIRST - WARM : FIRST - WARM + 10])
                ratio = statistics.mean(graph["steps_ns"]) / plain
                print(
                    f"round {number} {way}: {plain / 1e6:.3f} ms, recorded {ratio:.4f} times that"
                )
        for way in WAYS:
            result["windows"].append(window(target, way, "node", options.out, 0))
            print("node", way, statistics.median(result["windows"][-1]["steps_ns"]) / 1e6)
        for made in result["windows"][:2]:
            print(made["way"], made["reads"][:2], made["findings"][:3], made["health"], flush=True)
    finally:
        target.stop()
    save()
    left = subprocess.run(["pgrep", "-fa", "sglang"], capture_output=True, text=True, check=False)
    print("left behind:", left.stdout.strip() or "nothing")


if __name__ == "__main__":
    main()
