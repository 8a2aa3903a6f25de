"""What SGLang loads in each of its processes: hooks that only the scheduler's ever call."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bubblescope.targets.sglang import changes, spread
from bubblescope.targets.sglang.recorder import Recorder
from bubblescope.targets.sglang.replaying import Replay
from bubblescope.targets.sglang.routing import Routing
from bubblescope.targets.sglang.variants import Variants

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
SPANS = {
    f"{SCHEDULER}.get_next_batch_to_run": "schedule",
    f"{SCHEDULER}.process_batch_result": "results",
    "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker.draft": "draft",
    "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.verify": "verify",
    "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker._draft_extend_for_decode": "extend",
}
"""Stages of a step, by the method that does each."""
SAMPLING = "sglang.srt.speculative.eagle_utils"
WEIGHTS = "sglang.srt.model_loader.weight_utils.initialize_dummy_weights"


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
    for path in (changes.PDL, "sgl_kernel.utils.is_arch_support_pdl"):
        HookRegistry.register(path, changes.ask_pdl, HookType.AROUND)
    HookRegistry.register(changes.VERIFY, changes.attend, HookType.AROUND)
    if os.environ.get("BUBBLESCOPE_SGLANG_WEIGHTS") == "spread":
        HookRegistry.register(WEIGHTS, spread.fill, HookType.AROUND)
    replay = plugin.replay
    for path, hook in (
        ("sglang.srt.speculative.eagle_worker_common.build_eagle_verify_input", replay.draft),
        (f"{SAMPLING}.eagle_sample", replay.sample_verified),
        (f"{SAMPLING}.verify_tree_greedy_func", replay.verify),
        ("sglang.srt.layers.sampler.Sampler.forward", replay.sample),
    ):
        HookRegistry.register(path, hook, HookType.AROUND)


class Plugin:
    """The hooks, and the methods that they give the scheduler."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recorder = Recorder(folder)
        self.replay = Replay(folder)

    def made(self, original: Callable[..., None], scheduler: Any, *args: Any, **more: Any) -> None:
        """Around the scheduler's making: CUPTI must be there before graphs are captured."""
        from sglang.srt.runtime_context import get_parallel

        rank = get_parallel().tp_rank
        self._recorder.prepare(rank)
        original(scheduler, *args, **more)
        # `Engine.collective_rpc` calls methods of the scheduler by name.
        made = type(scheduler)
        made.bubblescope_arm = lambda _self, **order: self._recorder.arm(**order)
        made.bubblescope_set = staticmethod(
            functools.partial(self._set, scheduler, Variants(scheduler), rank)
        )
        routing = Routing(scheduler, self._folder, rank)
        made.bubblescope_routing_begin = staticmethod(routing.begin)
        made.bubblescope_routing_end = staticmethod(routing.end)
        made.bubblescope_replay = lambda _self, **order: self.replay.begin(scheduler, **order)
        made.bubblescope_replayed = lambda _self: self.replay.end(rank)

    def _set(
        self,
        scheduler: Any,
        variants: Variants,
        rank: int,
        on: list[str],
        lengths_on_host: bool,
        accept_length: float,
    ) -> None:
        """Set switches; what the engine says of itself then is left in a file.

        lengths_on_host: each step reads the sequence lengths back, as before SGLang's pull request
        32219. accept_length: of simulated acceptance, 0 for none.
        """
        from sglang.srt.speculative import spec_utils

        variants.use(frozenset(on))
        scheduler.future_map.needs_cpu_seq_lens = lengths_on_host
        spec_utils.SIMULATE_ACC_LEN = accept_length or -1.0
        path = self._folder / f"facts-{rank}.json"
        path.write_text(json.dumps(changes.facts(scheduler)), encoding="utf-8")

    def run_batch(
        self, original: Callable[..., Any], scheduler: Any, batch: Any, *more: Any
    ) -> Any:
        """Around each batch: a decode batch begins a step."""
        recorder = self._recorder
        self.replay.request(batch)
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
