import os
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

from sglang.kernels.jit.utils.arch import is_arch_support_pdl
from sglang.srt.environ import envs
from sglang.srt.models.bailing_moe_v3 import Model
from sglang.srt.speculative.adaptive_runtime_state import SpecRuntimeState


def draft_tp_context(layout: object) -> AbstractContextManager[None]:
    return nullcontext()


speculative_moe_backend_context = speculative_moe_a2a_backend_context = nullcontext


class EagleDraftWorker:
    parallel_layout = None
    draft_attn_backend = draft_extend_attn_backend = None
    cuda_graph_runner: Any = "draft graph"
    cuda_graph_runner_for_draft_extend: Any = "extend graph"
    draft_runner: Any = None

    def draft(self, batch: object) -> int:
        return 3

    def _draft_extend_for_decode(self, batch: object) -> None:
        pass


class EAGLEWorkerV2:
    speculative_num_steps, speculative_num_draft_tokens = 5, 6

    def __init__(self, worker: Any = None) -> None:
        self._target_worker = worker
        self._draft_worker = EagleDraftWorker()
        self.built = 0
        if worker is not None:
            model = Model(worker.model_runner.model.lm_head.weight)
            self._draft_worker.draft_runner = SimpleNamespace(model=model)

    def verify(self, batch: object) -> int:
        return 3

    def build_adaptive_runtime_state(self, steps: int, drafts: int) -> SpecRuntimeState:
        self.built += 1
        if os.environ.get("FAKE_CAPTURE") == f"fails at {self.built}":
            raise RuntimeError("CUDA out of memory")
        eager = envs.SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH.get()
        return SpecRuntimeState(
            steps,
            drafts,
            None,
            "draft graph",
            attention(),
            f"graph {self.built}, PDL {is_arch_support_pdl()}",
            None,
            None if eager else "extend graph",
        )

    def apply_runtime_state(self, state: SpecRuntimeState) -> None:
        if state.speculative_num_steps == self.speculative_num_steps:
            return
        self.speculative_num_steps = state.speculative_num_steps
        runner = self._target_worker.model_runner
        runner.attn_backend = state.target_attn_backend
        runner.decode_cuda_graph_runner = state.target_graph_runner
        extend = state.cuda_graph_runner_for_draft_extend
        self._draft_worker.cuda_graph_runner_for_draft_extend = extend


class KDAAttnBackend:
    def __init__(self) -> None:
        self._fused_chain_verify_fn = print if envs.SGLANG_OPT_FUSED_KDA_VERIFY.get() else None


def attention() -> Any:
    return SimpleNamespace(linear_attn_backend=KDAAttnBackend())
