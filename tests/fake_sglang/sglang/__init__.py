"""As little of SGLang as the target uses, in the shapes of release 0.5.23, without a GPU.

The engine starts its scheduler in a process of its own, which loads plugins, is called by name and
decodes tokens: each step gives three.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from typing import Any

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
        child.close()  # else nobody would notice that the scheduler's end is gone
        self._answer()
        print("the engine is up, scheduler", self._process.pid, os.environ.get("MARK", ""))

    def collective_rpc(self, method: str, **parameters: object) -> None:
        self._pipe.send((method, parameters))
        problem = self._answer()
        assert not problem, problem

    def generate(self, input_ids: list[int], sampling_params: dict[str, int]) -> dict[str, object]:
        order = {"tokens": sampling_params["max_new_tokens"], "prompt": len(input_ids)}
        self._pipe.send(("generate", order))
        ids = self._answer()
        meta = {"completion_tokens": len(ids), "spec_accept_length": 3.0, "id": "x"}
        meta["spec_verify_ct"] = -(-(len(ids) - 1) // 3)
        return {"output_ids": ids, "meta_info": meta}

    def shutdown(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(("stop", {}))
        self._process.join(10)
        self._process.kill()

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            self._process.join(10)
            raise RuntimeError(f"the scheduler ended with {self._process.exitcode}") from None
