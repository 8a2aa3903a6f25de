"""What SGLang loads in each of its processes: hooks that only the scheduler's ever call."""

from __future__ import annotations

import functools
import json
import os
import pkgutil
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
REPLAYED = (
    "sglang.srt.speculative.eagle_worker_common.build_eagle_verify_input",
    f"{SAMPLING}.eagle_sample",
    f"{SAMPLING}.verify_tree_greedy_func",
    "sglang.srt.layers.sampler.Sampler.forward",
)
"""Where known drafts take the place of the draft model's; in the order of `Replay`'s hooks."""


def load() -> None:
    """The entry point. SGLang logs what this raises, and goes on."""
    folder = os.environ.get("BUBBLESCOPE_SGLANG")
    if not folder:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for path, hook in Plugin(Path(folder)).hooks().items():
        HookRegistry.register(path, hook, HookType.AROUND)


class Plugin:
    """The hooks, and the methods that they give the scheduler."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recorder = Recorder(folder)
        self.replay = Replay(folder)
        self._shipped_lengths: bool | None = None

    def hooks(self) -> dict[str, Callable[..., Any]]:
        """What goes around which function of SGLang."""
        replay = self.replay
        made: dict[str, Callable[..., Any]] = {
            f"{SCHEDULER}.__init__": self.made,
            f"{SCHEDULER}.run_batch": self.run_batch,
            **{path: self.span(name) for path, name in SPANS.items()},
            changes.PDL: changes.ask_pdl,
            "sgl_kernel.utils.is_arch_support_pdl": changes.ask_pdl,
            changes.VERIFY: changes.attend,
        }
        if os.environ.get("BUBBLESCOPE_SGLANG_WEIGHTS") == "spread":
            made[WEIGHTS] = spread.fill
        around = (replay.draft, replay.sample_verified, replay.verify, replay.sample)
        return made | dict(zip(REPLAYED, around, strict=True))

    def made(self, original: Callable[..., None], scheduler: Any, *args: Any, **more: Any) -> None:
        """Around the scheduler's making: CUPTI must be there before graphs are captured."""
        from sglang.srt.runtime_context import get_parallel

        rank = get_parallel().tp_rank
        self._recorder.prepare(rank)
        original(scheduler, *args, **more)
        lengths = getattr(scheduler, "future_map", None)
        self._shipped_lengths = getattr(lengths, "needs_cpu_seq_lens", None)
        self._introduce(scheduler, rank, get_parallel().tp_size)
        # `Engine.collective_rpc` calls methods of the scheduler by name.
        made = type(scheduler)
        made.bubblescope_arm = lambda _self, **order: self._recorder.arm(**order)
        made.bubblescope_disarm = lambda _self: self._recorder.disarm()
        made.bubblescope_set = staticmethod(
            functools.partial(self._set, scheduler, Variants(scheduler), rank)
        )
        routing = Routing(scheduler, self._folder, rank)
        made.bubblescope_routing_begin = staticmethod(routing.begin)
        made.bubblescope_routing_end = staticmethod(routing.end)
        made.bubblescope_replay = lambda _self, **order: self.replay.begin(scheduler, **order)
        made.bubblescope_replayed = lambda _self: self.replay.end(rank)

    def _introduce(self, scheduler: Any, rank: int, ranks: int) -> None:
        """Leave a file of what the parent must know of the engine.

        SGLang only logs a hook for which it has no place.
        """
        worker = getattr(scheduler, "draft_worker", None)
        verified = getattr(worker, "speculative_num_draft_tokens", None) or 0
        said = {
            "ranks": ranks,
            "tokens": 1 if worker is None else int(verified),  # 0: as far as arguments tell
            "missed": [path for path in self.hooks() if not _there(path)],
        }
        path = self._folder / f"engine-{rank}.json"
        path.write_text(json.dumps(said), encoding="utf-8")

    def _set(
        self,
        scheduler: Any,
        variants: Variants,
        rank: int,
        on: list[str],
        lengths_on_host: bool | None,
        accept_length: float,
    ) -> None:
        """Set switches; what the engine says of itself then is left in a file.

        lengths_on_host: each step reads the sequence lengths back, as before SGLang's pull request
        32219; None: as the engine started. accept_length: of simulated acceptance, 0 for none.

        Raises:
            RuntimeError: the engine cannot be switched so.
        """
        from sglang.srt.speculative import spec_utils

        shipped = self._shipped_lengths
        if lengths_on_host is not None and shipped is None:
            raise RuntimeError("seq-len-sync: this release does not say whether it reads lengths")
        if lengths_on_host is False and shipped:
            raise RuntimeError(
                "seq-len-sync: an attention backend of this engine needs the lengths on the host"
            )
        variants.use(frozenset(on))
        if shipped is not None:
            scheduler.future_map.needs_cpu_seq_lens = (
                shipped if lengths_on_host is None else lengths_on_host
            )
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


def _there(path: str) -> bool:
    try:
        pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError):
        return False
    return True
