"""A CUDA device: one stream of its own, and CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from operator import methodcaller
from typing import Any

import torch
from torch import Tensor

from bubblescope.errors import BubblescopeError
from bubblescope.targets.ling.device import scope


class Cuda:
    """The device with index 0, by `stream` or one of its own. See device.py for the calls."""

    torch_device = "cuda"

    def __init__(self, stream: Any = None) -> None:
        if not torch.cuda.is_available():
            raise BubblescopeError("target ling: torch finds no CUDA device; use the CPU one")
        self.name = torch.cuda.get_device_name()
        self._stream: Any = stream or torch.cuda.Stream()
        # Without a Python frame between the caller and torch, so that a call site is the caller's.
        self.synchronize = partial(methodcaller("synchronize"), self._stream)
        self.synchronize_event = methodcaller("synchronize")

    def capture(self, name: str, body: Callable[[], None]) -> Any:
        """A graph of the operations of `body`, which runs once before: libraries warm up in it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(self._stream):
            body()
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph, stream=self._stream):
            body()
        return graph

    def replay(self, graph: Any) -> None:
        """Queue all operations of a graph by one host call."""
        with torch.cuda.stream(self._stream):
            graph.replay()

    def copy(self, target: Tensor, source: Tensor, kind: str) -> None:
        """Queue a copy between pinned host memory and the device."""
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)

    def record(self) -> Any:
        """An event that happens when what is queued so far is done."""
        return self._stream.record_event()

    def annotate(self, name: str) -> AbstractContextManager[None]:
        """An NVTX range."""
        made: AbstractContextManager[None] = torch.cuda.nvtx.range(name)
        return made

    def close(self) -> None:
        """Finish what is queued; memory goes back to the driver."""
        self._stream.synchronize()
        torch.cuda.empty_cache()


class EagerCuda(Cuda):
    """The same without graphs: each stage is launched operation by operation.

    For tools that see no kernel inside a graph. The names of what is captured are scopes of the
    operations: see device.scoped.
    """

    def capture(self, name: str, body: Callable[[], None]) -> Any:
        """The stage itself, which runs once: libraries warm up in it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        stage = name, body
        self.replay(stage)
        self._stream.synchronize()
        return stage

    def replay(self, graph: Any) -> None:
        """Launch the operations of a stage, each by a host call of its own."""
        name, body = graph
        with torch.no_grad(), torch.cuda.stream(self._stream), scope(name):
            body()
