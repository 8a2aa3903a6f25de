"""As little of SGLang as the target uses, in the shapes of release 0.5.23, without a GPU.

The engine starts its scheduler in a process of its own, which loads plugins, is called by name and
decodes tokens: each step gives three.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import time
from types import SimpleNamespace
from typing import Any

__version__ = "0.5.23"


class Engine:
    def __init__(self, **arguments: Any) -> None:
        if arguments.get("fail"):
            raise ValueError("the model has no such layer")
        time.sleep(arguments.get("slow", 0))
        if arguments.get("forks") and os.fork():
            os._exit(3)
        elif arguments.get("forks"):
            time.sleep(60)
        from sglang.srt.managers.scheduler import run_scheduler_process

        spawn = multiprocessing.get_context("spawn")
        self._pipes, self._processes, self._late = [], [], []
        for rank in range(arguments.get("tp_size", 1)):
            pipe, child = spawn.Pipe()
            made = spawn.Process(target=run_scheduler_process, args=(child, arguments, rank))
            made.start()
            child.close()  # else nobody would notice that the scheduler's end is gone
            self._pipes.append(pipe)
            self._processes.append(made)
        self._answers()
        socket = tempfile.mkstemp(prefix="fake-sglang-")[1]
        self.port_args = SimpleNamespace(rpc_ipc_name=f"ipc://{socket}", nccl_port=1)
        print("the engine is up, scheduler", self._processes[0].pid, os.environ.get("MARK", ""))

    def collective_rpc(self, method: str, **parameters: object) -> None:
        """Every rank does it; what the first says is passed on, as SGLang does."""
        self._send(method, parameters)
        problem = self._answers()[0]
        assert not problem, problem

    def flush_cache(self) -> SimpleNamespace:
        """The first time something is still running."""
        self._flushed = getattr(self, "_flushed", 0) + 1
        print("flushed:", self._flushed, flush=True)
        return SimpleNamespace(success=self._flushed > 1)

    def generate(self, input_ids: list[int], sampling_params: dict[str, int]) -> dict[str, object]:
        order = {"tokens": sampling_params["max_new_tokens"], "prompt": len(input_ids)}
        self._send("generate", order)
        ids = self._answer(0)
        self._late = list(range(1, len(self._pipes)))  # they may be at it for longer
        meta = {"completion_tokens": len(ids), "spec_accept_length": 3.0, "id": "x"}
        meta["spec_verify_ct"] = -(-(len(ids) - 1) // 3)
        return {"output_ids": ids, "meta_info": meta}

    def shutdown(self) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            with contextlib.suppress(OSError):
                pipe.send(("stop", {}))
            process.join(10)
            process.kill()

    def _send(self, method: str, parameters: Any) -> None:
        while self._late:
            self._answer(self._late.pop())
        for pipe in self._pipes:
            pipe.send((method, parameters))

    def _answers(self) -> list[Any]:
        return [self._answer(rank) for rank in range(len(self._pipes))]

    def _answer(self, rank: int) -> Any:
        try:
            return self._pipes[rank].recv()
        except EOFError:
            self._processes[rank].join(10)
            ended = self._processes[rank].exitcode
            raise RuntimeError(f"the scheduler ended with {ended}") from None
