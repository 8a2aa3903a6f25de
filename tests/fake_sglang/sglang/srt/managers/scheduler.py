from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sglang.srt.plugins import load_plugins


class Mode:
    def __init__(self, decode: bool) -> None:
        self._decode = decode

    def is_decode(self) -> bool:
        return self._decode


class Scheduler:
    def __init__(self, arguments: dict[str, Any], pipe: Any) -> None:
        self.future_map = SimpleNamespace(needs_cpu_seq_lens=False)
        self._pipe = pipe

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

    def generate(self, tokens: int) -> list[int]:
        ids: list[int] = []
        decode = False
        while len(ids) < tokens:
            batch = self.get_next_batch_to_run(decode)
            given = self.run_batch(batch)
            self.process_batch_result(batch, given)
            ids += [int(self.future_map.needs_cpu_seq_lens)] * (given if decode else 1)
            decode = True
        return ids[:tokens]


def run_scheduler_process(pipe: Any, arguments: dict[str, Any]) -> None:
    load_plugins()
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
