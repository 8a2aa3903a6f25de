"""What recording costs: the step without it, at graph level, at node level, under torch.profiler.

    python benchmarks/capture_cost.py --rounds 10 --out benchmarks/results/capture-cost-h200.json

Each way of recording has a process of its own, since only one tool can hold CUPTI in a process;
they take turns, in an order that is reversed every other round, and only one works at a time. A
window is LEAD steps apart and then STEPS timed ones. The cost of a round is its step over the step
without recording in the same round. `after_ns` are steps after recording stopped.

Loops: `ling`, the target's decode step as it reads its length back, and `ling-ahead`, the same with
the pass seq-len-sync, both with `--layers` layers of the TP4 rank's shapes; and three with one
`.item()` a step: `decode`, a graph of 500 bf16 matrix-vector products and 20 eager kernels;
`tiny`, a graph of 600 kernels of 1 us; `eager`, 200 launches and no graph.

Ways: `none`; `attached`, CUPTI taken and graphs traced but no window begun; `times`, graph level
without the lines of calls; `graph`, graph level as `bubblescope trace` records it; `node`; `torch`,
torch.profiler with CPU and CUDA.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

WAYS = ("none", "attached", "times", "graph", "node", "torch")
LEAD, STEPS = 5, 60


def ling(name: str, layers: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """A decode step of target ling, and what ends it."""
    from bubblescope.targets.ling.config import Config
    from bubblescope.targets.ling.target import Ling
    from optimizations.registry import applied

    full = Config.tp4_rank()
    config = replace(
        full,
        layers=layers,
        swiglu_limit=full.swiglu_limit[-layers:],
        shared_swiglu_limit=full.shared_swiglu_limit[-layers:],
    )
    target = Ling("cuda", config)
    passes = ExitStack()
    passes.enter_context(applied(["seq-len-sync"] if name == "ling-ahead" else [], target))
    target.start()

    def stop() -> None:
        target.stop()
        passes.close()

    return target.step, stop


def loop(name: str, layers: int) -> tuple[Callable[[], object], Callable[[], object]]:
    if name.startswith("ling"):
        return ling(name, layers)
    import torch

    if name == "decode":
        weights = [
            torch.randn(2560, 2560, device="cuda", dtype=torch.bfloat16) / 50 for _ in range(40)
        ]
        x = torch.randn(2560, device="cuda", dtype=torch.bfloat16)
        nodes, eager = 500, 20

        def node(k: int) -> None:
            torch.mv(weights[k % 40], x, out=out)

        out = torch.empty_like(x)
    else:
        x = torch.zeros(1024, device="cuda")
        nodes, eager = 600, 2

        def node(k: int) -> None:
            x.add_(1)

    node(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for k in range(nodes):
            node(k)
    y = torch.zeros(1024, device="cuda")
    if name == "eager":
        eager = 200

    def step() -> float:
        if name != "eager":
            graph.replay()
        for _ in range(eager):
            y.add_(1)
        return y[0].item()

    return step, lambda: None


def worker(way: str, name: str, layers: int) -> None:
    """Answers each line on stdin with one window's step times, in ns, as JSON."""
    from bubblescope.capture.cupti import CuptiBackend

    backend = None
    if way in ("attached", "times", "graph", "node"):
        backend = CuptiBackend("node" if way == "node" else "graph", sites=way != "times")
        backend.prepare()
    step, stop = loop(name, layers)
    import torch

    for _ in range(50):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        profiler = None
        if way == "torch":
            kinds = torch.profiler.ProfilerActivity
            profiler = torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA])
            profiler.start()
        elif backend is not None and way != "attached":
            backend.start()
        for _ in range(LEAD):
            step()
        times = [time.perf_counter_ns()]
        for _ in range(STEPS):
            step()
            times.append(time.perf_counter_ns())
        health: dict[str, int] = {}
        if profiler is not None:
            torch.cuda.synchronize()
            profiler.stop()
        elif backend is not None and way != "attached":
            tables = backend.stop()
            health = dict(
                zip(tables.health.kind.to_list(), tables.health.count.tolist(), strict=True)
            )
            health["operations"] = len(tables.device_ops)
        after = [time.perf_counter_ns()]
        for _ in range(20):
            step()
            after.append(time.perf_counter_ns())
        if backend is not None:
            backend.prepare()
        steps = [b - a for a, b in itertools.pairwise(times)]
        later = [b - a for a, b in itertools.pairwise(after)]
        answer = {"steps_ns": steps, "after_ns": later, "health": health}
        print(json.dumps(answer), flush=True)
    stop()


def upper(values: list[float], resamples: int = 4000) -> tuple[float, float, float]:
    """Median over rounds, with its 95 % bootstrap interval."""
    import random

    draw = random.Random(1)
    medians = sorted(
        statistics.median(draw.choices(values, k=len(values))) for _ in range(resamples)
    )
    return (
        statistics.median(values),
        medians[int(0.025 * resamples)],
        medians[int(0.975 * resamples)],
    )


def measure(name: str, ways: Sequence[str], rounds: int, layers: int) -> dict[str, Any]:
    workers = {
        way: subprocess.Popen(
            [sys.executable, __file__, "--worker", way, "--loop", name, "--layers", str(layers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for way in ways
    }
    samples: list[dict[str, Any]] = []
    for child in workers.values():
        assert child.stdout is not None
        while child.stdout.readline() != "ready\n":
            assert child.poll() is None, "a worker ended"
    for number in range(rounds):
        for way in ways if number % 2 == 0 else ways[::-1]:
            child = workers[way]
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("go\n")
            child.stdin.flush()
            answer = json.loads(child.stdout.readline())
            samples.append({"round": number, "way": way, **answer})
    for child in workers.values():
        assert child.stdin is not None
        child.stdin.close()
        child.wait(60)
    return {"samples": samples, "summary": summary(samples, ways, rounds)}


def summary(samples: list[dict[str, Any]], ways: Sequence[str], rounds: int) -> dict[str, Any]:
    step = {(s["round"], s["way"]): statistics.mean(s["steps_ns"]) for s in samples}
    middle = {(s["round"], s["way"]): statistics.median(s["steps_ns"]) for s in samples}
    found: dict[str, Any] = {}
    for way in ways:
        ratios = [step[r, way] / step[r, "none"] for r in range(rounds)]
        medians = [middle[r, way] / middle[r, "none"] for r in range(rounds)]
        found[way] = {
            "step_us_median_of_round_means": round(
                statistics.median(step[r, way] for r in range(rounds)) / 1000, 2
            ),
            "after_us": round(
                statistics.median(x for s in samples if s["way"] == way for x in s["after_ns"])
                / 1000,
                2,
            ),
            "cost_of_mean_step": dict(
                zip(
                    ("median", "low", "high"), (round(x - 1, 5) for x in upper(ratios)), strict=True
                )
            ),
            "cost_of_median_step": dict(
                zip(
                    ("median", "low", "high"),
                    (round(x - 1, 5) for x in upper(medians)),
                    strict=True,
                )
            ),
        }
    return found


def versions() -> dict[str, str]:
    import importlib.metadata as metadata

    import torch

    names = ("cupti-python", "nvidia-cuda-cupti", "numpy")
    known = {n: metadata.version(n) for n in names}
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {"python": sys.version.split()[0], "torch": torch.__version__, "gpu": driver, **known}


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--rounds", type=int, default=10)
    asked.add_argument("--out", type=Path)
    asked.add_argument("--commit", default="")
    asked.add_argument("--worker", choices=WAYS)
    asked.add_argument("--loop", default="decode")
    asked.add_argument("--loops", default="ling,ling-ahead,decode,tiny,eager")
    asked.add_argument("--ways", default=",".join(WAYS))
    asked.add_argument("--layers", type=int, default=12)
    options = asked.parse_args()
    if options.worker:
        worker(options.worker, options.loop, options.layers)
        return
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "commit": options.commit,
        "versions": versions(),
        "lead_steps": LEAD,
        "steps": STEPS,
        "layers": options.layers,
        "loops": {},
    }
    for name in options.loops.split(","):
        ways = options.ways.split(",")
        result["loops"][name] = measure(name, ways, options.rounds, options.layers)
        print(name, json.dumps(result["loops"][name]["summary"], indent=1), flush=True)
        if options.out:
            options.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
