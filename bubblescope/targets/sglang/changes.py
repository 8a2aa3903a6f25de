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

from bubblescope.targets.sglang.switches import ABSENT

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
    heads = _heads(scheduler)
    shared = [head.weight is heads[0].weight for head in heads]
    for head, same in zip(heads, shared, strict=True):
        if same and head is not heads[0]:
            head.weight = heads[0].weight
        else:
            _set_dtype(head, on)


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
"""By the names in `switches.SWITCHES`; those that are decided before the start have none."""


def facts(scheduler: Any) -> dict[str, str]:
    """What the running engine is set to, read off the objects that decide.

    What cannot be read off this release says so, as "not found: ..."; what the model has not, as
    `switches.ABSENT`.
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


def _heads(scheduler: Any) -> list[Any]:
    """The vocabulary's weights of each model, where they are its own and in bf16 or fp32.

    None where the model's are also its embedding, or quantized: they have no other dtype.
    """
    import torch

    known = (torch.bfloat16, torch.float32)
    found = []
    for model in _models(scheduler):
        head = getattr(model, "lm_head", None)
        own = head is not None and type(head).__name__ != "VocabParallelEmbedding"
        if own and getattr(getattr(head, "weight", None), "dtype", None) in known:
            found.append(head)
        elif not found:
            return []
    return found


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
    whole = scheduler.tp_worker.model_runner.attn_backend
    backend: Any = getattr(whole, "linear_attn_backend", None)
    if "KDAAttnBackend" not in {kind.__name__ for kind in type(backend).__mro__}:
        return ABSENT
    together = backend._fused_chain_verify_fn is not None
    return f"convolution and recurrence {'in one kernel' if together else 'apart'}"


def _draft_states(scheduler: Any) -> str:
    pool = getattr(scheduler.tp_worker.model_runner.req_to_token_pool, "mamba_pool", None)
    if pool is None:
        return ABSENT
    if pool.mamba_cache.intermediate_ssm is not None:
        return "a copy for each"
    replayed = pool.enable_linear_replayssm_spec and pool.mamba_cache.replayssm_g is not None
    return "replayed from raw inputs" if replayed else "neither copied nor replayed"


def _lengths(scheduler: Any) -> str:
    if not scheduler.enable_overlap:
        return "of the plain loop"
    read = scheduler.future_map.needs_cpu_seq_lens
    return "read back each step" if read else "stay on the device"


def _has(scheduler: Any, kind: str) -> bool:
    model = scheduler.tp_worker.model_runner.model
    return any(type(module).__name__ == kind for module in model.modules())


def _matvec(scheduler: Any) -> str:
    if not _gates(scheduler):
        return ABSENT
    return f"{_module(_MODEL).ROUTER_GATE_MATVEC_MAX_M} tokens"


def _align(scheduler: Any) -> str:
    if not _has(scheduler, "TopK"):
        return ABSENT
    return f"{_module(_ALIGN).SMALL_NUMEL_LIMIT} pairs"


def _topk(scheduler: Any) -> str:
    if not _has(scheduler, "TopK"):
        return ABSENT
    return str(_module(_TOPK).biased_grouped_topk.__name__)


def _gate(scheduler: Any) -> str:
    gates = _gates(scheduler)
    return str(gates[0].weight.dtype) if gates else ABSENT


def _lm_head(scheduler: Any) -> str:
    heads = _heads(scheduler)
    return str(heads[0].weight.dtype) if heads else ABSENT


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
    "router matvec up to": _matvec,
    "align in one launch up to": _align,
    "top-k": _topk,
    "gate": _gate,
    "lm_head": _lm_head,
    "draft-extend graph": _extend,
    "KDA verify": _kda,
    "metadata glue graph": _glue,
    "verify attention": _attention,
    "drafts' linear states": _draft_states,
    "sequence lengths": _lengths,
}
