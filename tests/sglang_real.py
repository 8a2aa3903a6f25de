"""Imports SGLang itself where there is no CUDA: two libraries that need it are put in as stubs.

Run as a program, it prints as JSON what tests/test_sglang_package.py asks for.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import inspect
import json
import os
import pkgutil
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

STUBS = ("sgl_kernel", "torchvision")
"""Built against CUDA: they cannot be loaded beside a CPU build of torch."""


class Stub(types.ModuleType):
    """A module that has whatever is asked of it."""

    __path__: list[str] = []
    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in STUBS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def hooks(folder: Path) -> dict[str, Any]:
    """Let SGLang find and load the plugin, as in each of its processes."""
    from sglang.srt import plugins
    from sglang.srt.plugins.hook_registry import HookRegistry

    from bubblescope.targets.sglang.link import _write_plugin

    _write_plugin(folder)
    sys.path.insert(0, str(folder / "plugin"))
    os.environ["BUBBLESCOPE_SGLANG"] = str(folder)
    plugins.load_plugins()
    asked = set(HookRegistry._hooks)
    return {"asked": sorted(asked), "missed": sorted(asked - HookRegistry._patched)}


def resolved(paths: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Parameters of those that are functions, and of what is not there, why. Before any hook."""
    signatures, missing = {}, {}
    for path in paths:
        if path.partition(".")[0] in STUBS:
            continue
        try:
            found = pkgutil.resolve_name(path)
        except (ImportError, AttributeError) as error:
            missing[path] = str(error)
            continue
        if inspect.isfunction(found):
            signatures[path] = list(inspect.signature(found).parameters)
    return signatures, missing


def fields() -> dict[str, list[str]]:
    """What requests and settings may hold."""
    from sglang.srt.environ import envs
    from sglang.srt.managers.io_struct import GenerateReqInput, ProfileReq
    from sglang.srt.sampling.sampling_params import SamplingParams
    from sglang.srt.server_args import ServerArgs

    return {
        "ServerArgs": list(inspect.signature(ServerArgs).parameters),
        "ProfileReq": list(inspect.signature(ProfileReq).parameters),
        "GenerateReqInput": list(inspect.signature(GenerateReqInput).parameters),
        "SamplingParams": list(inspect.signature(SamplingParams).parameters),
        "envs": [name for name in dir(type(envs)) if name.startswith("SGLANG_")],
    }


def routed(folder: Path) -> dict[str, Any]:
    """Six tokens through SGLang's own router, on the CPU; its choices are counted by threes."""
    from types import SimpleNamespace

    import torch
    from sglang.srt.configs.shared_experts import SharedExpertsConfig
    from sglang.srt.layers.moe import topk as module

    from bubblescope.targets.sglang.routing import Routing

    # Of a model that is loaded, which needs CUDA.
    module.get_model = lambda: SimpleNamespace(shared_experts=SharedExpertsConfig())
    router = module.TopK(
        top_k=2,
        layer_id=1,
        is_draft=False,
        use_grouped_topk=True,
        num_expert_group=2,
        topk_group=1,
        renormalize=True,
        scoring_func="sigmoid",
        correction_bias=torch.zeros(16),
        output_format=module.TopKOutputFormat.STANDARD,
    )
    runner = SimpleNamespace(
        model=torch.nn.ModuleList([router]),
        prefill_cuda_graph_runner="graph",
        model_config=SimpleNamespace(hf_text_config=SimpleNamespace(num_experts=16)),
    )
    logits = torch.full((6, 16), -9.0)
    for token, experts in enumerate([(0, 1), (0, 2), (1, 2), (8, 9), (8, 9), (9, 8)]):
        logits[token, list(experts)] = 9.0
    scheduler = SimpleNamespace(tp_worker=SimpleNamespace(model_runner=runner))
    routing = Routing(scheduler, folder, rank=0)
    routing.begin()
    module.select_experts(torch.zeros(6, 4), logits, router.topk_config, layer_id=1)
    routing.end(group=3)
    found: dict[str, Any] = json.loads((folder / "routing-0.json").read_text())
    return found


def serve(port_file: Path, files: Sequence[Path]) -> None:
    """SGLang's own HTTP server, with a tokenizer manager of ours behind it, until it is killed."""
    import asyncio
    import shutil
    from types import SimpleNamespace

    import uvicorn
    from sglang.srt.entrypoints import http_server
    from sglang.srt.managers.io_struct import ProfileReq

    class Manager:
        """Profiles at once, and decodes a step each millisecond."""

        def __init__(self) -> None:
            self.profiling = False

        async def start_profile(self, order: ProfileReq) -> None:
            assert order.num_steps == 5
            assert order.activities == ["CPU", "GPU"]
            assert not order.with_stack
            assert order.output_dir is not None
            for rank, file in enumerate(files):
                shutil.copy(file, Path(order.output_dir, f"1796.5-TP-{rank}.trace.json.gz"))

        async def stop_profile(self) -> None:
            raise RuntimeError("Profiling is not in progress. Call /start_profile first.")

        async def generate_request(self, asked: Any, _request: Any) -> Any:
            for tokens in range(1, asked.sampling_params["max_new_tokens"] + 1):
                yield {"meta_info": {"id": "x", "completion_tokens": tokens}}
                await asyncio.sleep(0.001)

        def create_abort_task(self, _asked: Any) -> None:
            return None

        async def get_internal_state(self) -> list[dict[str, Any]]:
            return [{"world_size": len(files)}]

        async def get_loads(self, include: Any = None, dp_rank: Any = None) -> list[Any]:
            from sglang.srt.managers.load_snapshot import LoadSnapshot

            return [LoadSnapshot()]

    manager = Manager()
    manager.startup_time = 1.0  # type: ignore[attr-defined]
    manager.metrics_collector = None  # type: ignore[attr-defined]
    manager.server_args = None  # type: ignore[attr-defined]
    http_server.set_global_state(SimpleNamespace(tokenizer_manager=manager, scheduler_info={}))
    # What it says of itself needs a model's configuration, which is not here.
    http_server.build_server_info = lambda _arguments, _info: {
        "model_path": "a/model",
        "tp_size": len(files),
    }
    from sglang.srt.entrypoints import v1_loads

    v1_loads._num_accelerators_per_dp_rank = lambda: 1
    v1_loads._accelerator_name = lambda: None

    server = uvicorn.Server(
        uvicorn.Config(http_server.app, port=0, lifespan="off", log_level="info")
    )

    async def run() -> None:
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.05)
        port_file.write_text(str(server.servers[0].sockets[0].getsockname()[1]))
        await task

    asyncio.run(run())


if __name__ == "__main__":
    sys.meta_path.insert(0, Stubs())
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling the router takes a minute
    what, place, *more = sys.argv[1:]
    if what == "serve":
        serve(Path(place), [Path(x) for x in more])
    else:
        signatures, missing = resolved(json.loads(more[0]))
        said = {"signatures": signatures, "missing": missing, "fields": fields()}
        said["routed"] = routed(Path(place))
        Path(place, "said.json").write_text(json.dumps(said | {"hooks": hooks(Path(place))}))
