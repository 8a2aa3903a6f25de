"""What makes races show: fewer multiprocessors, and work in front of a stage."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np
import torch

from bubblescope.targets.gated import NotOffered
from bubblescope.targets.ling.cuda import Cuda
from bubblescope.targets.ling.device import Device


class RestrictedCuda(Cuda):
    """The CUDA device with the stream of a green context: its kernels share few multiprocessors.

    Graphs captured in that stream keep to them too. Drivers set whole groups apart: 8, 16, 24 and
    so on of Hopper's.
    """

    def __init__(self, sms: int) -> None:
        super().__init__(_green(sms)[1])


@cache
def _green(sms: int) -> tuple[Any, Any]:
    """A green context and its stream.

    They live as long as the process: torch gives memory back in the stream that last used it.
    """
    from torch.cuda import green_contexts

    try:
        context = green_contexts.GreenContext.create(num_sms=sms, device_id=0)
        return context, context.Stream()
    except (RuntimeError, AttributeError) as error:
        reason = str(error).splitlines()[0]
        raise NotOffered(f"{sms} SMs cannot be set apart here: {reason}") from None


class Delays:
    """Queues real arithmetic of a given length in front of stages, drawn by a seed.

    Args:
        device: whose stream is delayed.
        length_ns: of each delay; it is longer where other work holds the device up.
        seed: of the stages that are delayed.
    """

    CHANCE = 1 / 8

    def __init__(self, device: Device, length_ns: int, seed: int) -> None:
        self._device = device
        self._draw = np.random.default_rng(seed)
        size = 2048 if device.torch_device == "cuda" else 256
        self._a = torch.full((size, size), 1 / size, device=device.torch_device)
        self._b, self._out = self._a.clone(), torch.empty_like(self._a)
        self._graph: Any = device.capture("delay", self._work)
        device.synchronize()
        spent = []
        for _ in range(5):
            begin = time.monotonic_ns()
            device.replay(self._graph)
            device.synchronize()
            spent.append(time.monotonic_ns() - begin)
        self._replays = -(-length_ns // min(spent))

    def before(self) -> None:
        """Delay the stage that is queued next, or not."""
        if self._draw.random() < self.CHANCE:
            for _ in range(self._replays):
                self._device.replay(self._graph)

    def _work(self) -> None:
        torch.mm(self._a, self._b, out=self._out)
