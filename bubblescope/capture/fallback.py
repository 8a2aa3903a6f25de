"""A process without CUPTI: record with torch.profiler from its first use of CUDA through torch."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from bubblescope.capture import notes, torch_cuda
from bubblescope.capture.imports import after_import
from bubblescope.capture.notes import Note
from bubblescope.capture.recorder import Recorder, keep_interrupt, rank
from bubblescope.capture.torch_profiler import TorchProfilerBackend


class Fallback:
    """Waits until torch is imported, then until CUDA is used, and then records.

    A process that never comes to it runs as it would have: no profiler, and nothing of CUDA.
    """

    def __init__(self, plan: dict[str, Any], why: str) -> None:
        """Nothing happens before `wait`.

        Args:
            plan: folder, seconds, as `command` sends them.
            why: why CUPTI cannot be used.
        """
        self._plan, self._why = plan, why
        self._folder, self._process = Path(plan["folder"]), os.getpid()
        self._used = False

    def wait(self) -> None:
        """Record once there is something to record with."""
        # torch's library reads it when it is loaded, and says on stderr when it records otherwise.
        os.environ.setdefault("KINETO_LOG_LEVEL", "4")
        self._idle(f"{self._why}; torch.profiler, the fallback, records programs that import torch")
        atexit.register(keep_interrupt)  # before torch's own are: it runs after them
        after_import("torch", self._imported)

    def _imported(self) -> None:
        with suppress(Exception):  # the import must end as it would have
            self._wait_for_cuda()

    def _wait_for_cuda(self) -> None:
        self._idle("torch was imported, and never used CUDA")
        atexit.register(self._unused)
        torch_cuda.at_first_use(self._begin)

    def _begin(self) -> None:
        """At the first use of CUDA: in this process, or in one forked from it before that."""
        with suppress(Exception):  # CUDA must begin as it would have
            self._record()

    def _record(self) -> None:
        self._used = True
        notes.withdraw(self._folder, self._process)
        backend = TorchProfilerBackend(why=self._why, rank=rank(), folder=self._folder)
        problem = Recorder(self._plan, backend, seconds=self._plan["seconds"]).begin()
        if problem:
            text = f"{self._why}; the fallback cannot record: {problem}"
            notes.write(self._folder, Note(os.getpid(), "problem", text))

    def _unused(self) -> None:
        """At the end of a process that did not use CUDA: perhaps it could not."""
        if not self._used and os.getpid() == self._process and not torch_cuda.available():
            self._idle("torch finds no CUDA device")

    def _idle(self, text: str) -> None:
        notes.write(self._folder, Note(self._process, "idle", text))
