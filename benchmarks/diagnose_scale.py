"""How long a diagnosis takes of N operations: eager launches, or graph replays, with reads.

    python benchmarks/diagnose_scale.py [--operations 10000000] [--kind eager|graph]

Prints one JSON line: operations, seconds of `diagnose` alone, peak memory of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from bubblescope.diagnose import diagnose
from bubblescope.timeline import Coded, DeviceOps, HostCalls, Meta, Ranges, Timeline

NAMES = tuple(f"kernel_{i}" for i in range(40))


def eager(operations: int) -> Timeline:
    """One launch an operation, 400 a step, a read-back at the end of each step, ops around."""
    rng = np.random.default_rng(7)
    launch = np.cumsum(rng.integers(2_000, 9_000, operations))
    duration = rng.integers(1_000, 7_000, operations)
    start = launch + 4_000
    # In order on one stream: nothing starts before what was launched before it has ended.
    free = np.maximum.accumulate(start - np.cumsum(duration) + duration)
    start = free + np.cumsum(duration) - duration
    last = np.arange(399, operations, 400)
    reads = launch[last] + 2_500
    names = (np.arange(operations) % 40).astype(np.int32)
    calls = HostCalls.build(
        operations + len(last),
        rank=0,
        process=1,
        thread=1,
        name=Coded(
            np.repeat([0, 1], [operations, len(last)]).astype(np.int32),
            ("cudaLaunchKernel", "cudaStreamSynchronize"),
        ),
        start=np.concatenate([launch, reads]),
        end=np.concatenate([launch + 1_500, np.maximum(reads + 100, start[last] + duration[last])]),
        correlation=np.arange(operations + len(last)),
    )
    ops = DeviceOps.build(
        operations,
        rank=0,
        process=1,
        device=0,
        stream=7,
        kind="kernel",
        name=Coded(names, NAMES),
        start=start,
        end=start + duration,
        correlation=np.arange(operations),
    )
    ranges = Ranges.build(
        operations,
        rank=0,
        process=1,
        thread=1,
        kind="op",
        name=Coded(names, NAMES),
        start=launch - 500,
        end=launch + 1_700,
    )
    meta = Meta(source="synthetic", format="synthetic")
    return Timeline.of(meta, device_ops=ops, host_calls=calls, ranges=ranges)


def graph(operations: int) -> Timeline:
    """Replays of 1,000 nodes each, then a read-back."""
    rng = np.random.default_rng(7)
    replays = operations // 1_000
    operations = replays * 1_000
    duration = rng.integers(1_000, 7_000, operations)
    gap = rng.integers(0, 2_000, operations)
    gap[::1_000] = 400_000
    end = np.cumsum(duration + gap)
    start = end - duration
    launch = start[::1_000] - 60_000
    calls = HostCalls.build(
        2 * replays,
        rank=0,
        process=1,
        thread=1,
        name=Coded(
            np.repeat([0, 1], replays).astype(np.int32),
            ("cudaGraphLaunch", "cudaStreamSynchronize"),
        ),
        start=np.concatenate([launch, launch + 50_000]),
        end=np.concatenate([launch + 45_000, end[999::1_000] + 3_000]),
        correlation=np.arange(2 * replays),
    )
    ops = DeviceOps.build(
        operations,
        rank=0,
        process=1,
        device=0,
        stream=7,
        kind="kernel",
        name=Coded((np.arange(operations) % 40).astype(np.int32), NAMES),
        start=start,
        end=end,
        correlation=np.arange(operations) // 1_000,
    )
    meta = Meta(source="synthetic", format="synthetic")
    return Timeline.of(meta, device_ops=ops, host_calls=calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--operations", type=int, default=10_000_000)
    parser.add_argument("--kind", choices=["eager", "graph"], default="graph")
    arguments = parser.parse_args()
    timeline = {"eager": eager, "graph": graph}[arguments.kind](arguments.operations)
    began = time.perf_counter()
    diagnosis = diagnose(timeline)
    print(
        json.dumps(
            {
                "kind": arguments.kind,
                "operations": len(timeline.device_ops),
                "bubbles": sum(len(d.bubbles.start) for d in diagnosis.devices),
                "seconds": round(time.perf_counter() - began, 2),
                "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
