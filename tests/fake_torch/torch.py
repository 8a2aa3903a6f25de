"""Stands in for torch in programs below `bubblescope trace`: CUDA that is used by `cuda.work()`.

Its profiler is as strict as the real one: a second one at work, or a second stop, ends the process,
and what is exported after another one began is of no use.
FAKE_TORCH says what is amiss: "no device", "export fails".
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from types import ModuleType

__version__ = "0.fake"
AMISS = os.environ.get("FAKE_TORCH", "")
STEPS = 12


def _module(name: str) -> ModuleType:
    made = sys.modules[f"torch.{name}"] = ModuleType(f"torch.{name}")
    return made


cuda, autograd, profiler = _module("cuda"), _module("autograd"), _module("profiler")
autograd.profiler = _module("autograd.profiler")
_C = _module("_C")
_C._profiler = _module("_C._profiler")
_C._profiler._ExperimentalConfig = lambda profile_all_threads: None
log: list[str] = []
atexit.register(lambda: exec("1"))  # as the modules do that torch imports at exit

# -- CUDA ------------------------------------------------------------------------------------------

cuda._queued_calls = []
cuda._initialized = False
cuda.is_initialized = lambda: cuda._initialized
cuda.is_available = lambda: AMISS != "no device"


def work() -> None:
    """Use CUDA."""
    if not cuda._initialized:
        for act, _asked in cuda._queued_calls:
            act()
        cuda._initialized = True


cuda.work = work

# -- its profiler ----------------------------------------------------------------------------------

_at_work: list[object] = []
_all: list[profile] = []
autograd.profiler._is_profiler_enabled = False
autograd._enable_record_function = lambda on: log.append(f"record_function {on}")


def _enable_profiler(who: object) -> None:
    if _at_work:
        os.abort()
    _at_work.append(who)
    autograd.profiler._is_profiler_enabled = True


autograd.profiler._enable_profiler = _enable_profiler


class profile:
    """Records `STEPS` steps 100 us apart: two launches, two kernels and a read that waits."""

    def __init__(self, **_settings: object) -> None:
        self.profiler = ModuleType("settings")
        self._latest = True

    def start(self) -> None:
        autograd.profiler._enable_profiler(self)
        for earlier in _all:
            earlier._latest = False
        _all.append(self)
        log.append("start")

    def stop(self) -> None:
        if _at_work != [self]:
            os.abort()
        _at_work.clear()
        autograd.profiler._is_profiler_enabled = False
        log.append("stop")

    def export_chrome_trace(self, path: str) -> None:
        if AMISS == "export fails":
            raise RuntimeError("disk full")
        if not self._latest:
            raise RuntimeError("no time in it can be true")
        events = [e for k in range(STEPS) for e in self._step(100 * k, 3 * k)]
        Path(path).write_text(json.dumps({"traceEvents": events}))

    def _step(self, t: int, c: int) -> list[dict[str, object]]:
        host, device = {"pid": os.getpid(), "tid": 1}, {"pid": 0, "tid": 7}
        rows = (
            ("user_annotation", "decode", t, 90, host, None),
            ("cuda_runtime", "cudaLaunchKernel", t + 10, 5, host, c),
            ("cuda_runtime", "cudaLaunchKernel", t + 16, 2, host, c + 1),
            ("cuda_runtime", "cudaStreamSynchronize", t + 20, 65, host, c + 2),
            ("kernel", "one", t + 20, 30, device, c),
            ("kernel", "two", t + 50, 30, device, c + 1),
        )
        return [
            {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur}
            | where
            | {"args": {"device": 0, "stream": 7, "correlation": id_}}
            for cat, name, ts, dur, where, id_ in rows
        ]


profiler.profile = profile
profiler.ProfilerActivity = type("ProfilerActivity", (), {"CPU": 0, "CUDA": 1})
