"""What of the engine can be switched: how SGLang behaved before a fix, and how with it.

Read off release 0.5.23 on Hopper. The scheduler's process carries it out, see `changes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineSwitch:
    """One behaviour of the engine.

    shipped: whether SGLang has it on. on, off: what the running engine must say of itself
    (`changes.facts`) with and without it. source: where SGLang decides, and since when. arguments:
    of sglang.Engine, of one that is decided before the engine starts; `starting` has more.
    """

    shipped: bool
    on: Mapping[str, str]
    off: Mapping[str, str]
    source: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


SWITCHES: dict[str, EngineSwitch] = {
    "pdl": EngineSwitch(
        shipped=True,
        on={"PDL": "allowed"},
        off={"PDL": "not allowed"},
        source="kernels/jit/utils/arch.py is_arch_support_pdl",
    ),
    "router": EngineSwitch(
        shipped=True,
        on={
            "router matvec up to": "8 tokens",
            "align in one launch up to": "64 pairs",
            "top-k": "biased_grouped_topk_gpu",
        },
        off={
            "router matvec up to": "0 tokens",
            "align in one launch up to": "0 pairs",
            "top-k": "biased_grouped_topk_impl",
        },
        source="kernels/ops/gemm/router_gate_matvec.py, kernels/ops/moe/moe_align_small_numel.py "
        "(pull request 32395), layers/moe/topk.py",
    ),
    "bf16 gate": EngineSwitch(
        shipped=False,
        on={"gate": "torch.bfloat16"},
        off={"gate": "torch.float32"},
        source="models/bailing_moe_v3.py router_dtype; bf16 in 0.5.19 to 0.5.22, fp32 in 0.5.23",
    ),
    "bf16 lm_head": EngineSwitch(
        shipped=True,
        on={"lm_head": "torch.bfloat16"},
        off={"lm_head": "torch.float32"},
        source="models/bailing_moe_v3.py ParallelLMHead(params_dtype=...), fp32 before",
    ),
    "draft-extend graph": EngineSwitch(
        shipped=True,
        on={"draft-extend graph": "captured"},
        off={"draft-extend graph": "none"},
        source="speculative/eagle_worker_v2.py _capture_cuda_graphs, "
        "SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH (pull request 30944)",
    ),
    "fused KDA verify": EngineSwitch(
        shipped=False,
        on={"KDA verify": "convolution and recurrence in one kernel"},
        off={"KDA verify": "convolution and recurrence apart"},
        source="layers/attention/linear/kda_backend.py SGLANG_OPT_FUSED_KDA_VERIFY",
    ),
    "glue graph": EngineSwitch(
        shipped=False,
        on={"metadata glue graph": "asked for"},
        off={"metadata glue graph": "off"},
        source="model_executor/runner/metadata_glue_graph.py SGLANG_ENABLE_METADATA_GLUE_GRAPH",
    ),
    "split verify attention": EngineSwitch(
        shipped=False,
        on={"verify attention": "split over the context"},
        off={"verify attention": "one program a head"},
        source="layers/attention/triton_backend.py _forward_extend_kernel; the kernel is ours, "
        "optimizations/kernels/verify_attention.py",
    ),
    "linear-state replay": EngineSwitch(
        shipped=False,
        on={"drafts' linear states": "replayed from raw inputs"},
        off={"drafts' linear states": "a copy for each"},
        source="mem_cache/memory_pool.py, layers/attention/linear/kda_backend.py, "
        "--enable-linear-replayssm-spec",
        arguments={"enable_linear_replayssm_spec": True},
    ),
}
SHIPPED = frozenset(name for name, switch in SWITCHES.items() if switch.shipped)
"""As SGLang starts."""
AT_START = frozenset(name for name, switch in SWITCHES.items() if switch.arguments)
"""Decided before the engine starts."""
ABSENT = "not in this model"
"""What the engine says of a part that its model has not."""


def problem(said: Mapping[str, str], on: frozenset[str], asked: frozenset[str]) -> str:
    """What in the engine is not as it should be, "" where nothing is.

    Args:
        said: by the engine, of itself.
        on: switches that are to be on; the others are to be off.
        asked: those of them that must be there. Others may concern what the model has not.
    """
    for name, switch in SWITCHES.items():
        for fact, wanted in (switch.on if name in on else switch.off).items():
            found = said.get(fact, "not said")
            if found == wanted or (found == ABSENT and name not in asked):
                continue
            if found == ABSENT:
                return f"{name!r} cannot be switched on: {fact} is {ABSENT}"
            return f"{fact} should be {wanted}, and is {found}"
    return ""
