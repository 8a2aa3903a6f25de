"""What bubblescope uses of SGLang, against SGLang itself: no GPU is needed, but the package is.

docs/sglang.md has the commands that install it beside a CPU build of torch.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from bubblescope.targets.sglang import attach, routing, settings, starting
from bubblescope.targets.sglang.plugin import SCHEDULER, SPANS
from bubblescope.targets.sglang.server import Server
from bubblescope.targets.sglang.switches import SWITCHES
from tests.e2e.program import decode_loop
from tests.sglang_server import profile

ROOT = Path(__file__).parents[1]
OURS = ROOT / "bubblescope" / "targets" / "sglang"
CHOICE = f"{routing._TOPK}.{routing._NOTED}"
PROGRAM = Path(__file__).parent / "sglang_real.py"
ENV = os.environ | {"PYTHONPATH": str(ROOT)}


def version() -> str:
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return ""


pytestmark = pytest.mark.skipif(
    not version(), reason="sglang is not installed; docs/sglang.md has the commands"
)


@cache
def package() -> Path:
    """Where SGLang's sources are; the stand-in of other tests is not looked at."""
    return Path(str(metadata.distribution("sglang").locate_file("sglang")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def used() -> set[str]:
    """Every dotted name of SGLang in our sources: imported, or written as a string."""
    found = set()
    for path in OURS.glob("*.py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang."):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {a.name for a in node.names if a.name.startswith("sglang.")}
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value.startswith("sglang.")
                and all(part.isidentifier() for part in node.value.split("."))
            ):
                found.add(node.value)
    return found - {"sglang.srt.plugins"}  # the name of the entry points


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What SGLang says of itself, imported in a process of its own."""
    folder = tmp_path_factory.mktemp("sglang")
    names = sorted(used() | set(SPANS) | {f"{SCHEDULER}.run_batch", CHOICE})
    command = [sys.executable, str(PROGRAM), "names", str(folder), json.dumps(names)]
    done = subprocess.run(
        command, env=ENV, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads((folder / "said.json").read_text())
    return answer


def test_sglang_finds_the_plugin_and_takes_every_hook(said: dict[str, Any]) -> None:
    asked = set(said["hooks"]["asked"])
    assert {f"{SCHEDULER}.__init__", f"{SCHEDULER}.run_batch", *SPANS} <= asked
    assert said["hooks"]["missed"] == []


def test_every_name_that_is_used_is_there(said: dict[str, Any]) -> None:
    assert len(used()) > 5
    assert said["missing"] == {}


def test_the_hooks_get_what_they_count_on(said: dict[str, Any]) -> None:
    assert said["signatures"][f"{SCHEDULER}.run_batch"][:2] == ["self", "batch"]
    assert said["signatures"][CHOICE] == ["topk_config", "layer_id", "topk_ids"]


def test_what_sglangs_router_chose_is_counted(said: dict[str, Any]) -> None:
    routed = said["routed"]
    assert routed["problem"] == ""
    assert (routed["layers"], routed["groups"], routed["chosen"]) == (1, 2, 2)
    assert (routed["distinct"], routed["most"]) == (2.5, 3)  # {0, 1, 2} and {8, 9}


def test_ling_tells_what_its_routers_chose_where_that_is_replaced() -> None:
    """The call is in the module whose name for it is replaced, and not in the model's own."""
    called = {
        file: f"{routing._NOTED}(" in (package() / "srt" / file).read_text(encoding="utf-8")
        for file in ("layers/moe/topk.py", "models/bailing_moe_v3.py")
    }
    assert called == {"layers/moe/topk.py": True, "models/bailing_moe_v3.py": False}


ATTRIBUTES = {
    "managers/scheduler.py": ("future_map", "tp_worker", "draft_worker", "enable_overlap"),
    "entrypoints/engine.py": ("port_args", "flush_cache", "collective_rpc", "generate"),
    "mem_cache/memory_pool.py": (
        "mamba_pool",
        "mamba_cache",
        "intermediate_ssm",
        "replayssm_g",
        "enable_linear_replayssm_spec",
        "kv_buffer",
        "k_buffer",
        "v_buffer",
    ),
    "managers/overlap_utils.py": ("needs_cpu_seq_lens",),
    "managers/tp_worker.py": ("model_runner",),
    "model_executor/model_runner.py": (
        "model",
        "attn_backend",
        "decode_cuda_graph_runner",
        "prefill_cuda_graph_runner",
    ),
    "layers/moe/topk.py": ("layer_id", "num_shared_topk_slots", "top_k"),
    "speculative/eagle_worker_v2.py": (
        "_draft_worker",
        "_target_worker",
        "build_adaptive_runtime_state",
        "apply_runtime_state",
        "speculative_num_steps",
        "speculative_num_draft_tokens",
        "draft_runner",
        "draft_attn_backend",
        "draft_extend_attn_backend",
        "cuda_graph_runner",
        "cuda_graph_runner_for_draft_extend",
    ),
    "layers/attention/hybrid_linear_attn_backend.py": ("linear_attn_backend",),
    "layers/attention/linear/kda_backend.py": ("_fused_chain_verify_fn",),
}
"""What is read off, or set on, objects that only a GPU can make."""


def attributes(path: Path) -> set[str]:
    """Names that a file's classes define: methods, fields, and what is assigned to an object."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


@pytest.mark.parametrize("file", ATTRIBUTES)
def test_objects_have_what_is_read_off_them(file: str) -> None:
    assert set(ATTRIBUTES[file]) - attributes(package() / "srt" / file) == set()


def test_a_rank_is_asked_for_as_sglang_does_itself() -> None:
    # A field that is made as it is asked for: no class has it.
    asks = package() / "srt" / "managers" / "scheduler_components" / "profiler_manager.py"
    assert "get_parallel().tp_rank" in asks.read_text(encoding="utf-8")
    sizes = package() / "srt" / "managers" / "scheduler.py"
    assert "get_parallel().tp_size" in sizes.read_text(encoding="utf-8")


def test_engine_arguments_are_sglangs(said: dict[str, Any]) -> None:
    made = settings.Settings.of(None, 4, (), None).arguments
    made = starting.arguments(made, SWITCHES)
    refused = {"pp_size", "dp_size", "nnodes", "enable_linear_replayssm", "linear_attn_backend"}
    refused |= {"linear_attn_decode_backend", "linear_attn_verify_backend"}
    assert (set(made) | refused) - set(said["fields"]["ServerArgs"]) == set()


def test_classes_are_told_by_their_names() -> None:
    names = {
        "layers/attention/linear/kda_backend.py": "KDAAttnBackend",
        "layers/vocab_parallel_embedding.py": "VocabParallelEmbedding",
        "models/bailing_moe_v3.py": "BailingMoEGate",
        "layers/moe/topk.py": "TopK",
    }
    for file, name in names.items():
        nodes = ast.walk(tree(package() / "srt" / file))
        made = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
        assert name in made, file


def test_the_ring_is_refused_where_sglang_refuses_it() -> None:
    """The rule that `starting` repeats, so that nobody waits a minute to be told."""
    pool = (package() / "srt" / "mem_cache" / "memory_pool.py").read_text(encoding="utf-8")
    assert "if L & (L - 1) != 0:" in pool
    assert "and L < 2 * speculative_num_draft_tokens" in pool
    assert said_default("linear_replayssm_cache_len") == starting.RING


def said_default(name: str) -> object:
    """Of an argument that is a field of a struct."""
    fields = ast.walk(tree(package() / "srt" / "arg_groups" / "fields" / "exec_.py"))
    return next(
        node.value.value
        for node in fields
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
        and node.target.id == name
    )


def test_environment_variables_are_sglangs(said: dict[str, Any]) -> None:
    written = {
        node.value
        for path in OURS.glob("*.py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("SGLANG_")
        and node.value.isidentifier()
    }
    assert "SGLANG_SIMULATE_ACC_LEN" in written
    assert written - set(said["fields"]["envs"]) - {"SGLANG_API_KEY", "SGLANG_"} == set()


def test_requests_are_as_sglang_takes_them(said: dict[str, Any]) -> None:
    fields = said["fields"]
    assert {"input_ids", "sampling_params", "stream"} <= set(fields["GenerateReqInput"])
    assert {"temperature", "max_new_tokens", "ignore_eos"} <= set(fields["SamplingParams"])


def test_attach_against_sglangs_own_http_server(tmp_path: Path) -> None:
    files = []
    for rank in range(2):
        path = tmp_path / f"{rank}.gz"
        path.write_bytes(profile(decode_loop(8), rank, 2))
        files.append(str(path))
    port = tmp_path / "port"
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, str(PROGRAM), "serve", str(port), *files],
            env=ENV,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 240
        while not port.exists() or not port.read_text():
            assert server.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        url = f"http://127.0.0.1:{port.read_text()}"
        timeline = attach.record(Server(url), first=40, steps=4)
    finally:
        server.kill()
        server.wait()
    assert sorted(set(timeline.device_ops.rank.tolist())) == [0, 1]
    assert len(timeline.device_ops) == 32
    about = timeline.meta.about
    assert about["run"] == (
        f"sglang: a/model at {url}, a request of bubblescope's, from about step 40 on"
    )
    assert about["sglang"] == version()
    assert timeline.meta.unprofiled_step_ns is not None
