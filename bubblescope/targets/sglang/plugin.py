"""What SGLang loads in each of its processes: hooks that only the scheduler's ever call."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bubblescope.targets.sglang.recorder import Recorder

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
SPANS = {
    f"{SCHEDULER}.get_next_batch_to_run": "schedule",
    f"{SCHEDULER}.process_batch_result": "results",
    "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker.draft": "draft",
    "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.verify": "verify",
    "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker._draft_extend_for_decode": "extend",
}
"""Stages of a step, by the method that does each."""


def load() -> None:
    """The entry point. SGLang logs what this raises, and goes on."""
    folder = os.environ.get("BUBBLESCOPE_SGLANG")
    if not folder:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    plugin = Plugin(Path(folder))
    HookRegistry.register(f"{SCHEDULER}.__init__", plugin.made, HookType.AROUND)
    HookRegistry.register(f"{SCHEDULER}.run_batch", plugin.run_batch, HookType.AROUND)
    for path, name in SPANS.items():
        HookRegistry.register(path, plugin.span(name), HookType.AROUND)


class Plugin:
    """The hooks, and the methods that they give the scheduler."""

    def __init__(self, folder: Path) -> None:
        self._recorder = Recorder(folder)

    def made(self, original: Callable[..., None], scheduler: Any, *args: Any, **more: Any) -> None:
        """Around the scheduler's making: CUPTI must be there before graphs are captured."""
        from sglang.srt.runtime_context import get_parallel

        self._recorder.prepare(get_parallel().tp_rank)
        original(scheduler, *args, **more)
        # `Engine.collective_rpc` calls methods of the scheduler by name.
        made = type(scheduler)
        made.bubblescope_arm = lambda _self, **order: self._recorder.arm(**order)
        made.bubblescope_lengths_on_host = staticmethod(
            functools.partial(_lengths_on_host, scheduler)
        )

    def run_batch(
        self, original: Callable[..., Any], scheduler: Any, batch: Any, *more: Any
    ) -> Any:
        """Around each batch: a decode batch begins a step."""
        recorder = self._recorder
        if recorder.armed and batch.forward_mode.is_decode():
            recorder.step()
        if not recorder.recording:
            return original(scheduler, batch, *more)
        begin = time.time_ns()
        result = original(scheduler, batch, *more)
        recorder.span("run batch", threading.get_native_id(), begin, time.time_ns())
        return result

    def span(self, name: str) -> Callable[..., Any]:
        """A hook that notes when a stage began and ended, while there is a recording."""
        recorder = self._recorder

        def around(original: Callable[..., Any], *args: Any, **more: Any) -> Any:
            if not recorder.recording:
                return original(*args, **more)
            begin = time.time_ns()
            try:
                return original(*args, **more)
            finally:
                recorder.span(name, threading.get_native_id(), begin, time.time_ns())

        return around


def _lengths_on_host(scheduler: Any, on: bool) -> None:
    """Whether each step reads the sequence lengths back, as before SGLang's pull request 32219."""
    scheduler.future_map.needs_cpu_seq_lens = on
