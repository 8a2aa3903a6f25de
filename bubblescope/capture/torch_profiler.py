"""Recording through torch.profiler, where CUPTI itself cannot be had."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from bubblescope.capture.backend import Tables
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Device, Health, Timeline


class TorchProfilerBackend:
    """Records through Kineto: the file that it writes is read like any other.

    stacks: also record Python frames, which says where reads are called and slows the loop.
    """

    def __init__(self, *, stacks: bool = False) -> None:
        self._stacks = stacks
        self._profiler: Any = None
        self._began = 0
        self._read: Timeline | None = None

    @property
    def title(self) -> str:
        """For `Meta.capture`."""
        return "torch.profiler"

    @property
    def level(self) -> str:
        """Kineto records every node of a graph."""
        return "node"

    @property
    def lost(self) -> str:
        """What this recorder cannot do."""
        lines = "" if self._stacks else "; the lines of blocking reads are not recorded"
        return (
            "torch.profiler records every graph node and every framework op, so host times and "
            f"small kernels are longer than they are{lines}"
        )

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices named in the recording."""
        return self._read.meta.devices if self._read is not None else ()

    def versions(self) -> dict[str, str]:
        """As the recording states them."""
        return dict(self._read.meta.versions) if self._read is not None else {}

    def start(self) -> None:
        """Record from now on."""
        try:
            from torch.profiler import ProfilerActivity, profile
        except ImportError as error:
            raise BubblescopeError(
                f"torch.profiler cannot be imported ({error}); pip install 'bubblescope[gpu]'"
            ) from None
        import torch

        kinds = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=kinds, with_stack=self._stacks)
        self._profiler.start()
        self._began = time.time_ns()

    def stop(self) -> Tables:
        """Stop, and read what Kineto wrote.

        Raises:
            BubblescopeError: it recorded no device operation.
        """
        import torch

        from bubblescope.ingest import load

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._profiler.stop()
        with tempfile.TemporaryDirectory(prefix="bubblescope-") as folder:
            path = Path(folder) / "torch-profiler.json"
            self._profiler.export_chrome_trace(str(path))
            self._profiler = None
            try:
                self._read = load(path)
            except BubblescopeError as error:
                what = str(error).replace(f"{path}: ", "")
                raise BubblescopeError(f"torch.profiler's recording: {what}") from None
        timeline = self._read
        note = Health.build(1, rank=0, kind=["capture"], count=1, note=[self.lost])
        return Tables(
            timeline.device_ops,
            timeline.host_calls,
            timeline.ranges,
            timeline.frames,
            Health.concat([timeline.health, note]),
            dict(timeline.meta.about),
        )
