"""A tiny checkpoint with the published names and shapes, made without the loop's code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

CONFIG: dict[str, Any] = {
    "architectures": ["BailingMoeV3ForCausalLM"],
    "model_type": "bailing_hybrid",
    "torch_dtype": "float32",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "layer_group_size": 2,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "short_conv_kernel_size": 4,
    "no_kda_lora": True,
    "kda_safe_gate": True,
    "kda_lower_bound": -5.0,
    "q_lora_rank": None,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 24,
    "gated_attention_proj_granularity_type": "head_wise",
    "intermediate_size": 48,
    "num_experts": 16,
    "num_shared_experts": 1,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 20,
    "moe_shared_expert_intermediate_size": 20,
    "moe_router_enable_expert_bias": True,
    "score_function": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "router_dtype": "fp32",
    "expert_swiglu_limit_list": None,
    "share_expert_swiglu_limit_list": None,
    "rms_norm_eps": 1e-6,
    "rope_theta": 6000000,
    "rope_interleave": True,
    "rope_scaling": None,
    "vocab_size": 96,
    "tie_word_embeddings": False,
    "max_position_embeddings": 256,
    "num_nextn_predict_layers": 1,
    "mtp_use_kda": False,
    "bos_token_id": 5,
    "eos_token_id": 7,
    "pad_token_id": 0,
}


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of every tensor of a checkpoint."""
    c = config
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    inner, nope, rope = heads * c["head_dim"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
    rank, value = c["kv_lora_rank"], c["v_head_dim"]
    kda = {f"{n}_proj.weight": (inner, hidden) for n in "qkvfg"}
    kda |= {f"{n}_conv1d.weight": (inner, 1, c["short_conv_kernel_size"]) for n in "qkv"}
    kda |= {"b_proj.weight": (heads, hidden), "A_log": (heads,), "dt_bias": (inner,)}
    kda |= {"o_norm.weight": (c["head_dim"],), "o_proj.weight": (hidden, inner)}
    mla = {
        "q_proj.weight": (heads * (nope + rope), hidden),
        "kv_a_proj_with_mqa.weight": (rank + rope, hidden),
        "kv_a_layernorm.weight": (rank,),
        "kv_b_proj.weight": (heads * (nope + value), rank),
        "g_proj.weight": (heads, hidden),
        "dense.weight": (hidden, heads * value),
    }

    def swiglu(prefix: str, width: int) -> dict[str, tuple[int, ...]]:
        return {
            f"{prefix}gate_proj.weight": (width, hidden),
            f"{prefix}up_proj.weight": (width, hidden),
            f"{prefix}down_proj.weight": (hidden, width),
        }

    moe = {"gate.weight": (c["num_experts"], hidden), "gate.expert_bias": (c["num_experts"],)}
    moe |= swiglu("shared_experts.", c["moe_shared_expert_intermediate_size"])
    for expert in range(c["num_experts"]):
        moe |= swiglu(f"experts.{expert}.", c["moe_intermediate_size"])

    made: dict[str, tuple[int, ...]] = {
        "model.word_embeddings.weight": (c["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (c["vocab_size"], hidden),
    }
    layers = c["num_hidden_layers"]
    for layer in range(layers + 1):
        attention = mla if layer == layers or (layer + 1) % c["layer_group_size"] == 0 else kda
        dense = layer < c["first_k_dense_replace"]
        feed = swiglu("", c["intermediate_size"]) if dense else moe
        norms = {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
        if layer == layers:
            norms |= {f"{n}.weight": (hidden,) for n in ("enorm", "hnorm", "final_layernorm")}
            norms |= {"eh_proj.weight": (hidden, 2 * hidden)}
        prefix = f"model.layers.{layer}."
        made |= {prefix + name: shape for name, shape in norms.items()}
        made |= {f"{prefix}attention.{name}": shape for name, shape in attention.items()}
        made |= {f"{prefix}mlp.{name}": shape for name, shape in feed.items()}
    return made


def tensors(config: dict[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random ones, of sizes at which every part of the model matters."""
    draw = torch.Generator().manual_seed(seed)
    made = {}
    for name, shape in shapes(config).items():
        drawn = torch.randn(shape, generator=draw)
        if "norm" in name:
            made[name] = 1 + 0.2 * drawn
        elif len(shape) > 1 and "word_embeddings" not in name:
            made[name] = drawn * shape[-1] ** -0.5
        else:
            made[name] = drawn * (0.3 if "expert_bias" in name else 1)
    return made


def write(directory: Path, config: dict[str, Any], made: dict[str, torch.Tensor], files: int = 1):
    """In one file, or in several with an index."""
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    if files == 1:
        save_file(made, directory / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(made)
    index = {}
    for n in range(files):
        file = f"model-{n + 1:05}-of-{files:05}.safetensors"
        part = {name: made[name] for name in names[n::files]}
        save_file(part, directory / file, metadata={"format": "pt"})
        index |= dict.fromkeys(part, file)
    said = {"metadata": {"total_size": 0}, "weight_map": index}
    (directory / "model.safetensors.index.json").write_text(json.dumps(said))
