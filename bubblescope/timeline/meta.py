"""What a Timeline was recorded from and with."""

from __future__ import annotations

import msgspec

STREAM_THREAD = "the CPU stream thread's own records"
"""`Meta.capture` of the CPU stream thread of targets/ling: it times itself, recorded or not."""


class Device(msgspec.Struct, frozen=True):
    """One accelerator as the recording names it; sizes in bytes, 0 where not recorded."""

    rank: int
    index: int
    name: str
    memory: int = 0
    multiprocessors: int = 0


class ThreadName(msgspec.Struct, frozen=True):
    """The name of a process (thread -1) or of one of its threads."""

    rank: int
    process: int
    thread: int
    name: str


class Meta(msgspec.Struct, frozen=True):
    """Facts that hold for the whole Timeline.

    base_ns: what was added to the file's own clock, so that times are ns since the Unix epoch
    where the file gives that base, and 0 where it does not.
    capture: how it was recorded, in words; `level` is "node", "graph" or "" (not known).
    unprofiled_step_ns: step time measured without any profiler, where that was done.
    """

    source: str
    format: str
    capture: str = ""
    level: str = ""
    base_ns: int = 0
    devices: tuple[Device, ...] = ()
    threads: tuple[ThreadName, ...] = ()
    versions: dict[str, str] = {}
    world_size: int = 1
    unprofiled_step_ns: int | None = None
    about: dict[str, str] = {}

    @property
    def lengthens_graphs(self) -> bool:
        """Whether recording the nodes of a graph lengthens its launch and the gaps in it."""
        return self.capture != STREAM_THREAD
