"""How long a prediction takes of N operations: eager launches, graph replays, graphs that branch.

    python benchmarks/predict_scale.py [--operations 1000000] [--kind eager|graph|branches]

Prints one JSON line: seconds to build the dependency graph, to replay it, to rank the findings of
a diagnosis, and of the diagnosis itself; how far the unchanged replay is off, in ns.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import replace

import numpy as np
from diagnose_scale import eager, graph

from bubblescope.diagnose import diagnose
from bubblescope.predict import Graph
from bubblescope.predict.ranking import savings
from bubblescope.timeline import Timeline

BRANCH = 20
"""In a graph that branches, so many nodes run on one stream before the other takes over."""


def branches(operations: int) -> Timeline:
    """The replays of `graph`, their nodes on two streams in turns."""
    made = graph(operations)
    ops = made.device_ops
    stream = 7 + 2 * (np.arange(len(ops)) // BRANCH % 2)
    return replace(made, device_ops=replace(ops, stream=stream))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--kind", choices=["eager", "graph", "branches"], default="graph")
    arguments = parser.parse_args()
    kinds = {"eager": eager, "graph": graph, "branches": branches}
    timeline = kinds[arguments.kind](arguments.operations)
    began = time.perf_counter()
    diagnosis = diagnose(timeline)
    diagnosed = time.perf_counter()
    savings(timeline, diagnosis)
    ranked = time.perf_counter()
    built = Graph(timeline, diagnosis.clocks.shift)
    ready = time.perf_counter()
    times = built.replay()
    replayed = time.perf_counter()
    print(
        json.dumps(
            {
                "kind": arguments.kind,
                "operations": len(timeline.device_ops),
                "diagnose_seconds": round(diagnosed - began, 2),
                "rank_seconds": round(ranked - diagnosed, 3),
                "build_seconds": round(ready - ranked, 2),
                "replay_seconds": round(replayed - ready, 2),
                "off_ns": int(np.abs(times.end - timeline.device_ops.end).max()),
                "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
