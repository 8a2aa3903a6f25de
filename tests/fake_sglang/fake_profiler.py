"""Stands in for torch.profiler in the stand-in's scheduler, where FAKE_PROFILER is set.

It writes twelve steps of its own making; "export fails" writes nothing.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

AMISS = os.environ.get("FAKE_PROFILER", "")
STEPS = 12


class Profile:
    def __init__(self, **_settings: object) -> None:
        self.profiler = SimpleNamespace()

    def start(self) -> None:
        self._began = time.time_ns()

    def stop(self) -> None:
        pass

    def export_chrome_trace(self, path: str) -> None:
        from tests.e2e.program import decode_loop

        if AMISS == "export fails":
            raise RuntimeError("disk full")
        document = {"baseTimeNanoseconds": self._began, "traceEvents": decode_loop(STEPS)}
        Path(path).write_text(json.dumps(document))


def install() -> None:
    import torch.profiler

    torch.profiler.profile = Profile
