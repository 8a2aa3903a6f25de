"""The config.json of a checkpoint of this architecture, read into a `Config`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bubblescope.errors import BubblescopeError
from bubblescope.targets.ling.config import Config

_SHAPES = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "group": "layer_group_size",
    "dense_layers": "first_k_dense_replace",
    "heads": "num_attention_heads",
    "head_dim": "head_dim",
    "conv_width": "short_conv_kernel_size",
    "gate_bound": "kda_lower_bound",
    "kv_rank": "kv_lora_rank",
    "nope_dim": "qk_nope_head_dim",
    "rope_dim": "qk_rope_head_dim",
    "value_dim": "v_head_dim",
    "dense_width": "intermediate_size",
    "experts": "num_experts",
    "expert_groups": "n_group",
    "top_groups": "topk_group",
    "top_experts": "num_experts_per_tok",
    "expert_width": "moe_intermediate_size",
    "shared_width": "moe_shared_expert_intermediate_size",
    "routed_scale": "routed_scaling_factor",
    "vocabulary": "vocab_size",
    "eps": "rms_norm_eps",
}
"""Fields of `Config`, and what the file calls them."""

_ONLY: dict[str, Any] = {
    "architectures": ["BailingMoeV3ForCausalLM"],
    "hidden_act": "silu",
    "kda_safe_gate": True,
    "no_kda_lora": True,
    "use_kda_lora": False,
    "q_lora_rank": None,
    "gated_attention_proj_granularity_type": "head_wise",
    "use_mla_nope": False,
    "rope_interleave": True,
    "score_function": "sigmoid",
    "norm_topk_prob": True,
    "moe_router_enable_expert_bias": True,
    "num_shared_experts": 1,
    "num_nextn_predict_layers": 1,
    "mtp_use_kda": False,
    "tie_word_embeddings": False,
    "use_bias": False,
    "use_qkv_bias": False,
    "quantization_config": None,
}
"""Fields that may have only one value, or be left out: the model has no other form."""


def read(directory: Path) -> Config:
    """The whole model of a checkpoint's directory.

    Raises:
        BubblescopeError: no such file, a field is missing, or it asks for what the loop has not.
    """
    path = directory / "config.json"
    try:
        given = json.loads(path.read_text())
    except FileNotFoundError:
        raise BubblescopeError(f"{path}: no such file; name a checkpoint's directory") from None
    except (OSError, ValueError) as error:
        raise BubblescopeError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(given, dict):
        raise BubblescopeError(f"{path}: holds no JSON object")
    for name, only in _ONLY.items():
        if name in given and given[name] != only:
            raise BubblescopeError(
                f"{path}: {name} is {json.dumps(given[name])}; target ling runs only "
                f"{json.dumps(only)}"
            )
    missing = [theirs for theirs in _SHAPES.values() if given.get(theirs) is None]
    if missing:
        raise BubblescopeError(f"{path}: has no {missing[0]}; target ling needs it")
    shapes = {ours: given[theirs] for ours, theirs in _SHAPES.items()}
    whole = Config()
    layers, last = shapes["layers"], shapes["vocabulary"] - 1
    context = min(given.get("max_position_embeddings") or whole.context, whole.context)
    begin, end = given.get("bos_token_id"), given.get("eos_token_id")
    return replace(
        whole,
        **shapes,
        rope_theta=_rope_theta(path, given),
        swiglu_limit=_limits(given.get("expert_swiglu_limit_list"), layers),
        shared_swiglu_limit=_limits(given.get("share_expert_swiglu_limit_list"), layers),
        context=context // whole.page * whole.page,
        request=min(whole.request, context // whole.page * whole.page - 4 * whole.window),
        first_token=min(whole.first_token, last) if begin is None else begin,
        last_token=end if isinstance(end, int) else -1,
        name=directory.resolve().name,
    )


def _limits(given: list[float | None] | None, layers: int) -> tuple[float, ...]:
    """The limit of each layer; where the list is shorter or absent, none."""
    listed = [float(limit or 0) for limit in (given or [])[:layers]]
    return (*listed, *[0.0] * (layers - len(listed)))


def _rope_theta(path: Path, given: dict[str, Any]) -> float:
    """The base of the angles; its fields have moved between releases of transformers."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = given.get(name) or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise BubblescopeError(
                f"{path}: {name} is {kind!r}; target ling runs only unscaled RoPE"
            )
    theta = given.get("rope_theta", (given.get("rope_parameters") or {}).get("rope_theta"))
    if theta is None:
        raise BubblescopeError(f"{path}: has no rope_theta; target ling needs it")
    return float(theta)
