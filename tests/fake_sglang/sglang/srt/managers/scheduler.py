from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

from sglang.srt.plugins import load_plugins
from sglang.srt.runtime_context import get_parallel


class Mode:
    def __init__(self, decode: bool) -> None:
        self._decode = decode

    def is_decode(self) -> bool:
        return self._decode


class Scheduler:
    slow_s = 0.0

    def __init__(self, arguments: dict[str, Any], pipe: Any) -> None:
        from sglang.srt.models.bailing_moe_v3 import Model
        from sglang.srt.speculative import eagle_worker_v2

        self.enable_overlap = True
        backend = arguments.get("attention_backend")
        self.future_map = SimpleNamespace(needs_cpu_seq_lens=backend == "flashinfer")
        replays = bool(arguments.get("enable_linear_replayssm_spec"))
        pool = SimpleNamespace(
            enable_linear_replayssm_spec=replays,
            mamba_cache=SimpleNamespace(
                intermediate_ssm=None if replays else "copies",
                replayssm_g="ring" if replays else None,
            ),
        )
        runner = SimpleNamespace(
            model=Model(),
            attn_backend=eagle_worker_v2.attention(),
            decode_cuda_graph_runner="graph 0, PDL True",
            prefill_cuda_graph_runner="graph",
            req_to_token_pool=SimpleNamespace(mamba_pool=pool),
            model_config=SimpleNamespace(hf_text_config=SimpleNamespace(num_experts=16)),
        )
        self.tp_worker = SimpleNamespace(model_runner=runner)
        self.draft_worker = eagle_worker_v2.EAGLEWorkerV2(self.tp_worker)
        self.draft_worker.speculative_num_draft_tokens = arguments.get("verified", 6)
        self._pipe = pipe
        if arguments.get("model") == "without routers":
            runner.model = Model(routed=False)
            self.draft_worker._draft_worker.draft_runner.model = Model(routed=False)
            eagle_worker_v2.attention = SimpleNamespace
            runner.attn_backend = SimpleNamespace()
            runner.req_to_token_pool = SimpleNamespace()

    def get_next_batch_to_run(self, decode: bool) -> SimpleNamespace:
        return SimpleNamespace(forward_mode=Mode(decode))

    def run_batch(self, batch: SimpleNamespace) -> int:
        from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker, EAGLEWorkerV2

        draft = EagleDraftWorker()
        draft.draft(batch)
        given = EAGLEWorkerV2().verify(batch)
        draft._draft_extend_for_decode(batch)
        return given

    def process_batch_result(self, batch: SimpleNamespace, result: int) -> None:
        pass

    def forget_draft_worker(self) -> None:
        self.draft_worker = None

    def lag(self) -> None:
        """This rank is slow from here on."""
        if get_parallel().tp_rank:
            self.slow_s = 0.02

    def fail_on_rank_1(self, name: str) -> None:
        if get_parallel().tp_rank == 1:
            setattr(type(self), name, fails)

    def die(self) -> None:
        os._exit(9)

    def prefill(self, tokens: int) -> None:
        """Routers run only where no graph does; the draft model's are layer 2 of its own and 3."""
        from sglang.srt.layers.moe.topk import TopK

        runner = self.tp_worker.model_runner
        if runner.prefill_cuda_graph_runner is None:
            for topk in runner.model.topks:
                topk(tokens)
            for layer_id in (2, 3):
                TopK(layer_id)(1)

    def generate(self, tokens: int, prompt: int) -> list[int]:
        self.prefill(prompt)
        ids: list[int] = []
        decode = False
        while len(ids) < tokens:
            time.sleep(self.slow_s)
            batch = self.get_next_batch_to_run(decode)
            given = self.run_batch(batch)
            self.process_batch_result(batch, given)
            ids += [int(self.future_map.needs_cpu_seq_lens)] * (given if decode else 1)
            decode = True
        return ids[:tokens]


def fails(_self: Any, **_parameters: object) -> None:
    raise RuntimeError("out of memory")


def run_scheduler_process(pipe: Any, arguments: dict[str, Any], rank: int) -> None:
    load_plugins()
    get_parallel().tp_rank, get_parallel().tp_size = rank, arguments.get("tp_size", 1)
    if "FAKE_PROFILER" in os.environ:
        import fake_profiler

        fake_profiler.install()
    scheduler = Scheduler(arguments, pipe)
    pipe.send("ready")
    while True:
        method, parameters = pipe.recv()
        if method == "stop":
            return
        if method == "generate":
            pipe.send(scheduler.generate(**parameters))
            continue
        try:
            getattr(scheduler, method)(**parameters)
            pipe.send("")
        except Exception as error:
            pipe.send(str(error))
