"""A small CUDA loop with known counts: a graph of NODES kernels, two eager ones, one `.item()`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

NODES = 100
READ_LINE = 40


def torch() -> Any:
    return importlib.import_module("torch")


def graph(nodes: int = NODES) -> Any:
    """A captured graph of `nodes` small kernels in a chain."""
    t = torch()
    y = t.zeros(1024, device="cuda")
    t.cuda.synchronize()
    captured = t.cuda.CUDAGraph()
    with t.cuda.graph(captured):
        for _ in range(nodes):
            y.add_(1)
    captured.keep = y
    return captured


def loop(nodes: int = NODES) -> Callable[[], float]:
    """One step as a function."""
    t = torch()
    captured = graph(nodes)
    x = t.zeros(1024, device="cuda")

    def step() -> float:
        captured.replay()
        x.add_(1)
        x.mul_(2)
        return x[0].item()  # READ_LINE

    return step
