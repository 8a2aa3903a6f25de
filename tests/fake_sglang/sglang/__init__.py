"""As little of SGLang as the target uses, in the shapes of release 0.5.23, without a GPU.

The engine starts its scheduler in a process of its own, which loads plugins, is called by name and
decodes tokens: each step gives three.
"""

from __future__ import annotations

import multiprocessing
import os

__version__ = "0.5.23"


class Engine:
    def __init__(self, **arguments: object) -> None:
        if arguments.get("fail"):
            raise ValueError("the model has no such layer")
        from sglang.srt.managers.scheduler import run_scheduler_process

        spawn = multiprocessing.get_context("spawn")
        self._pipe, child = spawn.Pipe()
        self._process = spawn.Process(target=run_scheduler_process, args=(child, arguments))
        self._process.start()
        self._pipe.recv()
        print("the engine is up, scheduler", self._process.pid, os.environ.get("MARK", ""))

    def collective_rpc(self, method: str, **parameters: object) -> None:
        self._pipe.send((method, parameters))
        problem = self._pipe.recv()
        assert not problem, problem

    def generate(self, input_ids: list[int], sampling_params: dict[str, int]) -> dict[str, object]:
        self._pipe.send(("generate", {"tokens": sampling_params["max_new_tokens"]}))
        ids = self._pipe.recv()
        meta = {"completion_tokens": len(ids), "spec_accept_length": 3.0, "id": "x"}
        return {"output_ids": ids, "meta_info": meta}

    def shutdown(self) -> None:
        self._pipe.send(("stop", {}))
        self._process.join()
