"""A backend that records a loop of its own making, for tests without a device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from bubblescope.capture.backend import Tables
from bubblescope.timeline import Device, DeviceOps, Frames, Health, HostCalls


class FakeBackend:
    """Each `work()` is a launch, a kernel and a synchronise of real times."""

    title, level, lost = "fake", "node", "everything real"
    devices = (Device(0, 0, "a fake"),)

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        self.on = False
        self.log: list[str] = []
        self.stopping: Callable[[], object] = lambda: None

    def prepare(self) -> None:
        self.log.append("prepare")

    def start(self) -> None:
        self.on = True
        self.log.append("start")

    def work(self) -> None:
        begin = time.time_ns()
        kernel = time.time_ns() + 1
        while time.time_ns() < kernel + 20_000:
            pass
        if self.on:
            self.rows.append((begin, begin + 1, kernel + 1, time.time_ns()))

    def stop(self, synchronise: bool = True) -> Tables:
        self.on = False
        self.log.append("stop")
        self.stopping()
        exec("1")  # as importing a module with a dataclass does
        n = len(self.rows)
        begin, called, kernel, end = zip(*self.rows, strict=True) if n else ((),) * 4
        process = os.getpid()
        ops = DeviceOps.build(
            n,
            rank=0,
            process=process,
            device=0,
            stream=7,
            kind="kernel",
            name="busy",
            start=kernel,
            end=end,
            correlation=range(n),
        )
        calls = HostCalls.build(
            n,
            rank=0,
            process=process,
            thread=1,
            name="cudaLaunchKernel",
            start=begin,
            end=called,
            correlation=range(n),
            frame=0,
        )
        frames = Frames.build(1, file=["loop.py"], line=[3], function=["work"])
        return Tables(
            ops, calls, frames=frames, health=Health.empty(), about={"gpu 0 uuid": "GPU-a"}
        )
