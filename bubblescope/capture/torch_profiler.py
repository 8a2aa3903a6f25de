"""Recording through torch.profiler, where CUPTI itself cannot be had."""

from __future__ import annotations

import importlib
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from bubblescope.capture import nvml
from bubblescope.capture.backend import NothingRecorded, Tables
from bubblescope.capture.cupti import devices
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Device, DeviceOps, Health, HostCalls, Ranges, Timeline

Ranked = TypeVar("Ranked", DeviceOps, HostCalls, Ranges, Health)

TITLE = "torch.profiler"
_FILE = "torch-profiler.json"
_BEGINNINGS = ("_prepare_profiler", "_enable_profiler")
"""What torch.autograd.profiler calls when anybody begins a profiler."""


class TorchProfilerBackend:
    """Records through Kineto: the file that it writes is read like any other.

    It grows by some 200 bytes an event while it records, and several times that when it stops.
    torch serves one profiler at a time, and a second one breaks the first: where the program
    begins its own, this recording ends.
    """

    def __init__(
        self, *, stacks: bool = False, why: str = "", rank: int = 0, folder: Path | None = None
    ) -> None:
        """Nothing is imported before `start`.

        Args:
            stacks: also record Python frames, which says where reads are called and slows the loop.
            why: why CUPTI could not be used, for the report; "" where it was not wanted.
            rank: of this process, where torch.distributed does not say.
            folder: where Kineto's file is kept until it is read; that for temporary files if None.
        """
        self._stacks, self._why, self._rank = stacks, why, rank
        self._within = folder
        self._profiler: Any = None
        self._yielded = False
        self._folder: Path | None = None
        self._failed: Exception | None = None
        self._lock = threading.RLock()
        self._restore: list[Callable[[], None]] = []
        self._read: Timeline | None = None

    @property
    def title(self) -> str:
        """For `Meta.capture`."""
        return TITLE

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
        if self._read is None:
            return ()
        found = self._read.meta.devices
        return tuple(msgspec.structs.replace(d, rank=d.rank or self._rank) for d in found)

    def versions(self) -> dict[str, str]:
        """As the recording states them."""
        return dict(self._read.meta.versions) if self._read is not None else {}

    def start(self) -> None:
        """Record all threads from now on.

        Raises:
            BubblescopeError: torch is not there, too old, or its profiler is in use.
        """
        try:
            from torch.profiler import ProfilerActivity, profile
        except ImportError as error:
            raise BubblescopeError(
                f"torch.profiler cannot be imported ({error}); pip install 'bubblescope[gpu]'"
            ) from None
        import torch

        if _in_use():
            raise BubblescopeError(
                "torch.profiler is in use in this process already, by the program itself: one "
                "recording at a time; read the file that it writes with `bubblescope diagnose`"
            )
        kinds = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(ProfilerActivity.CUDA)
        with warnings.catch_warnings():  # on stderr, of what holds for several cycles only
            warnings.simplefilter("ignore")
            self._profiler = profile(
                activities=kinds, with_stack=self._stacks, experimental_config=_all_threads()
            )
            self._profiler.start()
        self._yielded, self._failed = False, None
        self._watch()

    def stop(self, synchronise: bool = True) -> Tables:
        """Stop, and read what Kineto wrote; any thread may.

        Args:
            synchronise: wait for the device; False where another thread may be capturing.

        Raises:
            NothingRecorded: it recorded no device operation.
        """
        self._halt(synchronise)
        self._read = self._load()
        timeline = self._read
        _, uuids = devices.find()
        about = timeline.meta.about | nvml.state(uuids)
        about |= {f"gpu {index} uuid": uuid for index, uuid in uuids.items()}
        rank = int(timeline.device_ops.rank[0]) or self._rank
        return Tables(
            _ranked(timeline.device_ops, rank),
            _ranked(timeline.host_calls, rank),
            _ranked(timeline.ranges, rank),
            timeline.frames,
            Health.concat([_ranked(timeline.health, rank), self._health(rank)]),
            about,
        )

    def forked(self) -> None:
        """In a forked child: its ops are not kept, which would take memory without end."""
        import torch

        torch.autograd._enable_record_function(False)

    # -- in between ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """End the recording when anybody else begins a profiler."""
        module = importlib.import_module("torch.autograd.profiler")
        for name in _BEGINNINGS:
            begin = getattr(module, name, None)
            if begin is not None:
                setattr(module, name, self._before(begin))
                self._restore.append(partial(setattr, module, name, begin))

    def _before(self, begin: Callable[..., Any]) -> Callable[..., Any]:
        def yielding(*args: Any, **kwargs: Any) -> Any:
            if self._halt(synchronise=False):
                self._yielded = True
            return begin(*args, **kwargs)

        return yielding

    def _halt(self, synchronise: bool) -> bool:
        """Stop and export, once; False where that was done: a second stop ends the process."""
        with self._lock:
            restore, self._restore = self._restore, []
            for put_back in restore:
                put_back()
            if not restore:
                return False
            if not synchronise:
                time.sleep(0.1)
                self._profiler.profiler.use_device = None  # what it would wait for
            try:
                self._profiler.stop()
                self._export()
            except Exception as error:  # for `stop`: the program's own profiler must begin
                self._failed = error
            self._profiler = None
            return True

    def _export(self) -> None:
        """At once, since another recording changes the clock that this one is written by."""
        # Not a TemporaryDirectory, which the end of the interpreter may empty before `stop`.
        self._folder = Path(tempfile.mkdtemp(prefix="bubblescope-", dir=self._within))
        self._profiler.export_chrome_trace(str(self._folder / _FILE))

    def _load(self) -> Timeline:
        from bubblescope.ingest import load

        try:
            if self._failed is not None:
                raise self._failed
            assert self._folder is not None
            return load(self._folder / _FILE)
        except BubblescopeError as error:
            what = str(error).replace(f"{self._folder}/{_FILE}: ", "")
            first = f"{self._why}; in its place, " if self._why else ""
            raise NothingRecorded(f"{first}torch.profiler's recording: {what}") from None
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def _health(self, rank: int) -> Health:
        notes = [("capture", self.lost)]
        if self._why:
            notes.append(
                (
                    "fallback",
                    f"recorded with torch.profiler because CUPTI could not be used: {self._why}",
                )
            )
        if self._yielded:
            notes.append(
                ("recording cut", "it ends where the program began a torch.profiler of its own")
            )
        return Health.build(
            len(notes), rank=rank, kind=[k for k, _ in notes], count=1, note=[n for _, n in notes]
        )


def _in_use() -> bool:
    """Whether somebody's torch.profiler is at work."""
    module = importlib.import_module("torch.autograd.profiler")
    return bool(getattr(module, "_is_profiler_enabled", False))


def _all_threads() -> Any:
    """Settings under which every thread is recorded, and any thread may stop."""
    config: Any = importlib.import_module("torch._C._profiler")._ExperimentalConfig
    for more in ({"trace_only": True}, {}):  # no tables for Python, which are never asked for
        try:
            return config(profile_all_threads=True, **more)
        except TypeError:  # an older torch
            continue
    raise BubblescopeError("this torch cannot record all threads; 2.11 or later can")


def _ranked(table: Ranked, rank: int) -> Ranked:
    return replace(table, rank=np.full(len(table), rank, np.int64))
