"""In the scheduler's process: graphs of several sets of switches, side by side in one engine.

SGLang itself keeps several sets of graphs, for its adaptive speculation: each with attention
backends of its own, made by `build_adaptive_runtime_state` and put in use by
`apply_runtime_state`. The same is done here with one number of steps and different switches.
"""

from __future__ import annotations

from typing import Any

from bubblescope.targets.sglang.changes import CHANGES
from bubblescope.targets.sglang.switches import SHIPPED


class Variants:
    """The sets of graphs of one scheduler; that which it started with is the first."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._states: dict[frozenset[str], Any] = {}
        self._used: frozenset[str] | None = SHIPPED

    def use(self, on: frozenset[str]) -> None:
        """Switch these on and all others off; graphs are captured if there are none yet.

        No generation may run. It takes seconds when graphs are captured, else no time.

        Raises:
            RuntimeError: the engine does not speculate, and so cannot keep several sets of graphs.
        """
        if on == self._used:
            return
        worker = getattr(self._scheduler, "draft_worker", None)
        if worker is None or not hasattr(worker, "build_adaptive_runtime_state"):
            raise RuntimeError("passes are put on a running engine with EAGLE or NEXTN only")
        if not self._states:
            self._states[SHIPPED] = _in_use(worker)
        self._used = None  # whatever fails on the way leaves a mixture: nothing may rest on it
        for name, change in CHANGES.items():
            change(self._scheduler, name in on)
        if on not in self._states:
            self._states[on] = _captured(worker)
        _put_in_use(worker, self._states[on])
        self._used = on


def _in_use(worker: Any) -> Any:
    from sglang.srt.speculative.adaptive_runtime_state import SpecRuntimeState

    draft, runner = worker._draft_worker, worker._target_worker.model_runner
    return SpecRuntimeState(
        speculative_num_steps=worker.speculative_num_steps,
        speculative_num_draft_tokens=worker.speculative_num_draft_tokens,
        draft_attn_backend=draft.draft_attn_backend,
        cuda_graph_runner=draft.cuda_graph_runner,
        target_attn_backend=runner.attn_backend,
        target_graph_runner=runner.decode_cuda_graph_runner,
        draft_extend_attn_backend=draft.draft_extend_attn_backend,
        cuda_graph_runner_for_draft_extend=draft.cuda_graph_runner_for_draft_extend,
    )


def _captured(worker: Any) -> Any:
    import torch
    from sglang.srt.speculative import eagle_worker_v2 as module

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    with (
        module.draft_tp_context(worker._draft_worker.parallel_layout),
        module.speculative_moe_backend_context(),
        module.speculative_moe_a2a_backend_context(),
    ):
        made = worker.build_adaptive_runtime_state(
            worker.speculative_num_steps, worker.speculative_num_draft_tokens
        )
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return made


def _put_in_use(worker: Any, state: Any) -> None:
    worker.speculative_num_steps = -1  # with the same number SGLang would do nothing
    worker.apply_runtime_state(state)
