"""In the scheduler's process: carries switches out, and says what the engine is set to.

What a change touches is read when graphs are captured and when stages run eagerly: `variants`
captures anew after it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import FunctionType
from typing import Any

_ALIGN = "sglang.srt.layers.moe.moe_runner.triton_utils.moe_align_block_size"
_MODEL = "sglang.srt.models.bailing_moe_v3"
_TOPK = "sglang.srt.layers.moe.topk"
PDL = "sglang.kernels.jit.utils.arch.is_arch_support_pdl"
"""What every kernel asks before it is launched as a programmatic dependent launch."""
VERIFY = "sglang.srt.layers.attention.triton_backend.TritonAttnBackend._forward_extend_kernel"
"""What the Triton backend verifies drafts with."""
_pdl_allowed = True
_split_verify = False
_split_calls = 0


def ask_pdl(original: Callable[..., bool], *args: Any) -> bool:
    """Around `PDL`, and around the copy of it in the package sgl_kernel."""
    return _pdl_allowed and original(*args)


def pdl(_scheduler: Any, on: bool) -> None:
    """Launch kernels as programmatic dependent launches, or not at all so."""
    global _pdl_allowed
    if on != _pdl_allowed:
        _pdl_allowed = on
        os.environ["TRTLLM_ENABLE_PDL"] = os.environ["SGLANG_DEEPGEMM_PDL"] = str(int(on))
        for made in _made_with_pdl():
            made.clear()


def router(_scheduler: Any, on: bool) -> None:
    """SGLang's small kernels for gate, top-k and alignment, or a library's and torch's."""
    model, align, topk = _module(_MODEL), _module(_ALIGN), _module(_TOPK)
    model.ROUTER_GATE_MATVEC_MAX_M = 8 if on else 0
    align.SMALL_NUMEL_LIMIT = 64 if on else 0
    topk.biased_grouped_topk = topk.biased_grouped_topk_gpu if on else topk.biased_grouped_topk_impl


def bf16_gate(scheduler: Any, on: bool) -> None:
    """The router gates' weights in bf16 or in fp32."""
    for gate in _gates(scheduler):
        _set_dtype(gate, on)


def bf16_lm_head(scheduler: Any, on: bool) -> None:
    """The vocabulary's weights in bf16 or, widened, in fp32; the draft model shares them."""
    first, *others = [model.lm_head for model in _models(scheduler)]
    _set_dtype(first, on)
    for head in others:
        head.weight = first.weight


def draft_extend_graph(_scheduler: Any, on: bool) -> None:
    """The draft-extend stage as a captured graph, or launched kernel by kernel."""
    _environment("SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH", not on)


def fused_kda_verify(_scheduler: Any, on: bool) -> None:
    """Convolution, gates and recurrence of KDA's verification in one kernel."""
    _environment("SGLANG_OPT_FUSED_KDA_VERIFY", on)


def glue_graph(_scheduler: Any, on: bool) -> None:
    """Attention metadata prepared by a captured graph."""
    _environment("SGLANG_ENABLE_METADATA_GLUE_GRAPH", on)


def split_verify(_scheduler: Any, on: bool) -> None:
    """The verify attention with the context split over programs, `kernels.verify_attention`."""
    global _split_verify
    _split_verify = on


def attend(
    original: Callable[..., Any],
    backend: Any,
    layer: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    keys: Any,
    values: Any,
    begins: Any,
    context: Any,
    table: Any,
    mask: Any,
    causal: bool,
    *rest: Any,
    **named: Any,
) -> Any:
    """Around `VERIFY`; what the split kernel does not take goes to SGLang's."""
    global _split_calls
    given = (backend, layer, q, k, v, out, keys, values, begins, context, table, mask, causal)
    plain = not any(named.get(name) for name in ("logit_cap", "sinks", "score_mod"))
    if _split_verify and plain and causal and backend.topk <= 1 and q.is_cuda:
        from optimizations.kernels.verify_attention import fits, verify

        rank, window = v.shape[-1], named.get("sliding_window_size")
        one_latent = values.data_ptr() == keys.data_ptr() and rank < k.shape[-1]
        whole = window is None or window <= 0
        if one_latent and whole and fits(q, k, keys, rank, context):
            _split_calls += 1
            return verify(q, k, keys, context, table, rank=rank, scale=layer.scaling, out=out)
    return original(*given, *rest, **named)


CHANGES: dict[str, Callable[[Any, bool], None]] = {
    "pdl": pdl,
    "router": router,
    "bf16 gate": bf16_gate,
    "bf16 lm_head": bf16_lm_head,
    "draft-extend graph": draft_extend_graph,
    "fused KDA verify": fused_kda_verify,
    "glue graph": glue_graph,
    "split verify attention": split_verify,
}
"""By the names in `switches.SWITCHES`."""


def facts(scheduler: Any) -> dict[str, str]:
    """What the running engine is set to, read off the objects that decide.

    What cannot be read off this release says so, as "not found: ...".
    """
    found = {}
    for name, ask in _FACTS.items():
        try:
            found[name] = ask(scheduler)
        except (ImportError, AttributeError, IndexError) as error:
            found[name] = f"not found: {error}"
    return found


def draft(scheduler: Any) -> Any:
    """The worker that drafts.

    Raises:
        AttributeError: the engine does not speculate, or not with one draft model.
    """
    return scheduler.draft_worker._draft_worker


def _module(path: str) -> Any:
    return import_module(path)


def _models(scheduler: Any) -> list[Any]:
    found = [scheduler.tp_worker.model_runner.model]
    if getattr(scheduler, "draft_worker", None) is not None:
        found.append(draft(scheduler).draft_runner.model)
    return found


def _gates(scheduler: Any) -> list[Any]:
    return [
        module
        for model in _models(scheduler)
        for module in model.modules()
        if type(module).__name__ == "BailingMoEGate"
    ]


def _set_dtype(module: Any, bf16: bool) -> None:
    """Swap a module's weight for itself in another dtype; both stay, for graphs that read them."""
    import torch

    kept = module.__dict__.setdefault("_bubblescope_weights", {module.weight.dtype: module.weight})
    wanted = torch.bfloat16 if bf16 else torch.float32
    if wanted not in kept:
        widened = module.weight.detach().to(wanted)
        kept[wanted] = torch.nn.Parameter(widened, requires_grad=False)
        # What loaders and tensor parallelism note on a weight.
        kept[wanted].__dict__.update(module.weight.__dict__)
    module.weight = kept[wanted]


def _environment(name: str, on: bool) -> None:
    os.environ[name] = str(int(on))


def _made_with_pdl() -> Iterator[dict[Any, Any]]:
    """Caches of compiled modules whose key does not say whether they were compiled with PDL."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("sglang.kernels.") or module is None:
            continue
        for function in list(vars(module).values()):
            if not isinstance(function, FunctionType):
                continue  # lazy modules answer to any name
            made = getattr(function, "__wrapped__", None)
            if not isinstance(made, FunctionType):
                continue
            if "is_arch_support_pdl" not in made.__code__.co_names:
                continue
            for cell in function.__closure__ or ():
                if isinstance(cell.cell_contents, dict):
                    yield cell.cell_contents


def _kda(scheduler: Any) -> str:
    backend = scheduler.tp_worker.model_runner.attn_backend.linear_attn_backend
    together = backend._fused_chain_verify_fn is not None
    return f"convolution and recurrence {'in one kernel' if together else 'apart'}"


def _extend(scheduler: Any) -> str:
    graph = draft(scheduler).cuda_graph_runner_for_draft_extend
    return "none" if graph is None else "captured"


def _glue(_scheduler: Any) -> str:
    asked = _module("sglang.srt.environ").envs.SGLANG_ENABLE_METADATA_GLUE_GRAPH.get()
    return "asked for" if asked else "off"


def _attention(_scheduler: Any) -> str:
    if not _split_verify:
        return "one program a head"
    return "split over the context" if _split_calls else "asked for, and never called"


def _pdl(_scheduler: Any) -> str:
    asked = _module("sglang.kernels.jit.utils.arch").is_arch_support_pdl()
    return "allowed" if asked else "not allowed"


_FACTS: dict[str, Callable[[Any], str]] = {
    "PDL": _pdl,
    "router matvec up to": lambda _: f"{_module(_MODEL).ROUTER_GATE_MATVEC_MAX_M} tokens",
    "align in one launch up to": lambda _: f"{_module(_ALIGN).SMALL_NUMEL_LIMIT} pairs",
    "top-k": lambda _: str(_module(_TOPK).biased_grouped_topk.__name__),
    "gate": lambda scheduler: str(_gates(scheduler)[0].weight.dtype),
    "lm_head": lambda scheduler: str(_models(scheduler)[0].lm_head.weight.dtype),
    "draft-extend graph": _extend,
    "KDA verify": _kda,
    "metadata glue graph": _glue,
    "verify attention": _attention,
}
