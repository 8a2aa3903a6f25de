"""What a recorder of a running program is, and the tables that it hands over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from bubblescope.errors import BubblescopeError
from bubblescope.timeline import DeviceOps, Frames, Health, HostCalls, Ranges


class NothingRecorded(BubblescopeError):
    """Recording went well, and there is no device operation in it."""


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """What a recorder saw, times in ns since the Unix epoch on `time.time_ns()`'s clock.

    about: facts measured by the recorder itself, for `Meta.about`.
    """

    device_ops: DeviceOps = field(default_factory=DeviceOps.empty)
    host_calls: HostCalls = field(default_factory=HostCalls.empty)
    ranges: Ranges = field(default_factory=Ranges.empty)
    frames: Frames = field(default_factory=Frames.empty)
    health: Health = field(default_factory=Health.empty)
    about: dict[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """Records device operations and host calls between `start` and `stop`.

    title: for `Meta.capture`, as in "CUPTI, graph level". level: "node", "graph" or "".
    lost: one sentence on what this backend cannot see, "" where nothing is lost.
    """

    @property
    def title(self) -> str:
        """How it records, in words."""
        ...

    @property
    def level(self) -> str:
        """Whether graph replays are recorded whole or node by node."""
        ...

    @property
    def lost(self) -> str:
        """What it cannot see."""
        ...

    def start(self) -> None:
        """Record every call from now on."""
        ...

    def stop(self) -> Tables:
        """Stop recording, wait for what was launched meanwhile, and hand over the tables."""
        ...


@runtime_checkable
class Prepared(Protocol):
    """A backend that must be told before a program captures the graphs that it is to see."""

    def prepare(self) -> None:
        """Get ready; nothing is recorded yet."""
        ...
