"""The plain arithmetic against what others wrote: transformers' own model, and fla's recurrence."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
# transformers takes fla's kernels where it can import them, and those want a GPU. Here its own
# torch code is wanted, whatever is installed; it chooses when its model is imported: by hasattr.
KERNELS = ("fla", "causal_conv1d")
INSTALLED = {name: sys.modules.get(name) for name in KERNELS}
sys.modules.update(dict.fromkeys(KERNELS))  # type: ignore[arg-type]
try:
    has_model = hasattr(transformers, "BailingHybridForCausalLM")
finally:
    for name, module in INSTALLED.items():
        del sys.modules[name]
        if module is not None:
            sys.modules[name] = module
if not has_model:
    pytest.skip("this transformers has no BailingHybrid; it takes 5.24", allow_module_level=True)
pytest.importorskip("safetensors", reason="safetensors is not installed")

from safetensors.torch import load_file  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from transformers import DeepseekV3Config  # noqa: E402
from transformers.models.bailing_hybrid import modeling_bailing_hybrid as theirs  # noqa: E402
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek  # noqa: E402

from bubblescope.targets.ling import checkpoint, config_file  # noqa: E402
from bubblescope.targets.ling.loop import Loop  # noqa: E402
from bubblescope.targets.ling.mla import Positions  # noqa: E402
from bubblescope.targets.ling.reference import kda, mla, moe, norms, rope  # noqa: E402
from bubblescope.targets.ling.weights import Unset  # noqa: E402
from tests import ling_checkpoint as tiny  # noqa: E402

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
ALIKE = {"rtol": 1e-3, "atol": 3e-4}
"""Of fp32 through four layers: theirs computes the recurrence in chunks."""
PROMPT = torch.tensor(
    [5, 17, 3, 88, 41, 17, 60, 2, 9, 33, 71, 12, 5, 5, 90, 64, 28, 50, 1, 7, 45, 30]
)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def fla(file: str, name: str) -> Callable[..., Any]:
    """A plain torch function of fla, without importing fla, which wants Triton and a GPU."""
    found = importlib.util.find_spec("fla")
    if found is None or not found.submodule_search_locations:
        pytest.skip("fla-core is not installed")
    path = Path(found.submodule_search_locations[0]) / "ops" / "kda" / file
    source = ast.parse(path.read_text())
    wanted = [n for n in source.body if isinstance(n, ast.FunctionDef) and n.name == name]
    assert wanted, f"{path} has no {name}"
    space: dict[str, Any] = {"torch": torch, "F": F}
    exec(compile(ast.Module(wanted, []), str(path), "exec"), space)
    made: Callable[..., Any] = space[name]
    return made


# The whole model, from the same files.


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint without clamps, which transformers' model does not have.

    What latents are made of is so small that the eps of their norm counts.
    """
    folder = tmp_path_factory.mktemp("checkpoint")
    made = tiny.tensors(tiny.CONFIG)
    for name, tensor in made.items():
        if name.endswith("kv_a_proj_with_mqa.weight"):
            tensor[: tiny.CONFIG["kv_lora_rank"]] *= 1e-3
    tiny.write(folder, tiny.CONFIG, made)
    return folder


@pytest.fixture(scope="module")
def other(files: Path) -> Any:
    made, told = transformers.BailingHybridForCausalLM.from_pretrained(
        files, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    # The names are the published ones: theirs finds every tensor but the draft head's.
    assert not told["missing_keys"]
    assert not told["mismatched_keys"]
    assert not [n for n in told["unexpected_keys"] if not n.startswith("model.layers.4.")]
    return made.eval()


@pytest.fixture
def ours(files: Path) -> Loop:
    loop = Loop(config_file.read(files), Unset(0, "cpu", torch.float32))
    checkpoint.load(loop, files)
    return loop


def run(loop: Loop, tokens: torch.Tensor, rows: int) -> torch.Tensor:
    """Hidden states of all tokens, so many in one call, over shuffled cache slots."""
    order = torch.Generator().manual_seed(9)
    table = torch.randperm(loop.config.context, generator=order)
    made = []
    for first in range(0, len(tokens), rows):
        given = tokens[first : first + rows]
        at = torch.arange(first, first + len(given))
        made.append(loop.model(given, Positions(at, table[at], table)))
        loop.model.commit(torch.tensor([len(given) - 1]))
    return torch.cat(made)


@pytest.mark.parametrize("rows", [1, 5])
def test_the_model_says_what_transformers_model_says(ours: Loop, other: Any, rows: int) -> None:
    """Token by token or five at a time: their one pass over the whole sequence."""
    hidden = run(ours, PROMPT, rows)
    said = other(PROMPT.unsqueeze(0), output_hidden_states=True)
    torch.testing.assert_close(hidden, said.hidden_states[-1][0], **ALIKE)
    torch.testing.assert_close(ours.model.logits(hidden), said.logits[0], **ALIKE)
    assert said.logits.std() > 0.5  # so that closeness says something


def test_states_and_caches_are_those_of_transformers(ours: Loop, other: Any) -> None:
    run(ours, PROMPT, 1)
    cache = other(PROMPT.unsqueeze(0), use_cache=True).past_key_values
    for number in (0, 2):
        mine = ours.model.layers[number].attention
        state = cache.get_recurrent_state(number, state_idx=0)[0]
        torch.testing.assert_close(mine.state, state.transpose(1, 2), **ALIKE)
        history = cache.get_conv_state(number, state_idx=0)[0]
        torch.testing.assert_close(mine.history.t(), history[:, -3:], **ALIKE)


def test_the_draft_head_is_one_more_layer_of_theirs(
    ours: Loop, files: Path, other: Any, tmp_path: Path
) -> None:
    """Its input as SGLang makes it: [enorm(embedding), hnorm(normed hidden)] @ eh_proj."""
    made = load_file(files / "model.safetensors")
    prefix = "model.layers.4."
    alone = {n: made[n] for n in ("model.word_embeddings.weight", "lm_head.weight")}
    alone["model.norm.weight"] = made[prefix + "final_layernorm.weight"]
    alone |= {
        n.replace(prefix, "model.layers.0."): t
        for n, t in made.items()
        if n.startswith((prefix + "attention", prefix + "mlp", prefix + "input", prefix + "post"))
    }
    one = {"num_hidden_layers": 1, "layer_group_size": 1, "first_k_dense_replace": 0}
    tiny.write(tmp_path, tiny.CONFIG | one, alone)
    head, told = transformers.BailingHybridForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        layer = theirs.BailingHybridRMSNorm(64, 1e-6)
        layer.weight.copy_(made[prefix + name])
        return layer(x)

    hidden = other(PROMPT[:-1].unsqueeze(0), output_hidden_states=True).hidden_states[-1]
    embedded = made["model.word_embeddings.weight"][PROMPT[1:]].unsqueeze(0)
    both = [norm(embedded, "enorm.weight"), norm(hidden, "hnorm.weight")]
    x = F.linear(torch.cat(both, -1), made[prefix + "eh_proj.weight"])
    said = head(inputs_embeds=x, output_hidden_states=True)

    table = torch.arange(ours.config.context)
    at = table[: len(PROMPT) - 1]
    mine = ours.mtp(PROMPT[1:], run(ours, PROMPT[:-1], 3), Positions(at, at, table))
    torch.testing.assert_close(mine, said.hidden_states[-1][0], **ALIKE)
    assert torch.equal(ours.mtp.next_token(mine), said.logits[0].argmax(-1))


# Parts, in the shapes of the published model or of one of its ranks.


def test_the_recurrence_is_flas() -> None:
    tokens, count, key, value = 9, 8, 128, 128
    q, k = (randn(tokens, count, key, seed=s) for s in (1, 2))
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    v, beta = randn(tokens, count, value, seed=3), randn(tokens, count, seed=4).sigmoid()
    g = -5 * randn(tokens, count, key, seed=5).sigmoid()
    state = randn(count, value, key, seed=6)
    kept = state.clone()
    out, states = kda.delta_rule(q * key**-0.5, k, v, g, beta, state)
    assert torch.equal(state, kept)
    for n in range(1, tokens + 1):
        given = [x[None, :n] for x in (q, k, v, g, beta)]
        expected, last = fla("naive.py", "naive_recurrent_kda")(
            *given, initial_state=kept.transpose(1, 2)[None], output_final_state=True
        )
        torch.testing.assert_close(states[n - 1], last[0].transpose(1, 2), **CLOSE)
    torch.testing.assert_close(out, expected[0], **CLOSE)


def test_the_gate_is_flas() -> None:
    f, a_log, bias = randn(7, 8, 128, seed=1), randn(8, 1, seed=2), randn(8, 128, seed=3)
    expected = fla("gate.py", "naive_kda_lowerbound_gate")(f, a_log, bias, lower_bound=-5.0)
    mine = kda.log_decay(f, a_log, bias, -5.0)
    torch.testing.assert_close(mine, expected)
    assert -5 <= float(mine.min()) < -4
    assert -1 < float(mine.max()) <= 0


def test_convolution_norms_and_recurrence_are_those_of_a_whole_layer_of_theirs() -> None:
    """Eight heads of 128, with a history and a state, and weights of the usual sizes."""
    tokens, count, size, width = 6, 8, 128, 4
    qkv, history = randn(tokens, 3072, seed=1), randn(width - 1, 3072, seed=2)
    conv, gate = randn(3072, width, seed=3) / 2, randn(tokens, 1024, seed=4)
    f, b = randn(tokens, 1024, seed=5), randn(tokens, count, seed=6)
    a_log, bias = randn(count, 1, seed=7), randn(count, size, seed=8)
    norm, state = 1 + randn(size, seed=9) / 5, randn(count, size, size, seed=10)
    out, states, histories = kda.kda(
        qkv, f, b, gate, conv, a_log, bias, norm, state, history, bound=-5.0, eps=1e-6
    )
    fresh = history.t()[None].clone()
    mixed = theirs.causal_conv1d_update(qkv.t()[None], fresh, conv, None, "silu")
    q, k, v = mixed[0].t().view(1, tokens, 3, count, size).unbind(2)
    g = -5 * torch.sigmoid(a_log.exp() * (f.view(tokens, count, size) + bias))
    expected, last = theirs.recurrent_kimi_delta_attention(
        q, k, v, g[None], b.sigmoid()[None], state.transpose(1, 2)[None], True, True
    )
    layer = theirs.BailingHybridRMSNormGated(size, 1e-6)
    layer.weight.copy_(norm)
    expected = layer(expected, gate.view(1, tokens, count, size))
    torch.testing.assert_close(out, expected.reshape(tokens, -1), **CLOSE)
    torch.testing.assert_close(states[-1], last[0].transpose(1, 2), **CLOSE)
    assert torch.equal(histories[-1].t(), fresh[0])
    assert torch.equal(histories[0], torch.cat([history[1:], qkv[:1]]))


def published(**changed: Any) -> DeepseekV3Config:
    shapes = {
        "hidden_size": 96,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 512,
        "num_local_experts": 512,
        "num_experts_per_tok": 8,
        "n_group": 8,
        "topk_group": 4,
        "routed_scaling_factor": 2.5,
        "norm_topk_prob": True,
        "rope_interleave": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 6e6},
        "max_position_embeddings": 16_384,
        "attn_implementation": "eager",
    }
    return DeepseekV3Config(**(shapes | changed))


def test_the_angles_are_deepseeks_to_the_last_bit() -> None:
    at = torch.arange(16_384)
    layer = deepseek.DeepseekV3RotaryEmbedding(published())
    cos, sin = layer(torch.zeros(1, 1, 64), at[None])
    mine = rope.rope_table(16_384, 64, 6e6, "cpu")
    assert torch.equal(mine[0], cos[0, :, :32])
    assert torch.equal(mine[1], sin[0, :, :32])


def test_absorbed_attention_is_deepseeks_late_in_a_context() -> None:
    """The last 6 of 40 tokens, at positions from 9,000 on, against theirs over expanded keys."""
    first, count, late = 9000, 40, 6
    layer = deepseek.DeepseekV3Attention(published(), 0)
    for n, weight in enumerate(layer.parameters()):
        spread = weight.shape[-1] ** -0.5 if weight.dim() > 1 else 0.2
        weight.copy_(randn(*weight.shape, seed=n) * spread + (weight.dim() == 1))
    x = 2 * randn(count, 96, seed=50)
    at = torch.arange(count)
    mask = torch.where(at > at.unsqueeze(1), float("-inf"), 0.0)[None, None]
    turned = deepseek.DeepseekV3RotaryEmbedding(published())(x, (at + first)[None])
    expected = layer(x[None], turned, mask)[0][0]

    cos, sin = (t[first : first + count] for t in rope.rope_table(16_384, 64, 6e6, "cpu"))
    q = layer.q_proj(x).view(count, 32, 192)
    both = layer.kv_b_proj.weight.view(32, 256, 512)
    cache = mla.latents(layer.kv_a_proj_with_mqa(x), layer.kv_a_layernorm.weight, cos, sin, 1e-6)
    queries = mla.queries(q[-late:], both[:, :128], cos[-late:], sin[-late:])
    seen = mla.attention(queries, cache, at[-late:], 512, 192**-0.5)
    out = mla.values(seen, both[:, 128:], torch.full((late, 32), 1e4))  # gates open
    torch.testing.assert_close(layer.o_proj(out), expected[-late:], **CLOSE)


@pytest.mark.parametrize("lower", [0.0, 3.0])
def test_experts_are_chosen_as_deepseeks_router_does(lower: float) -> None:
    """With a bias so large that choice and weight often differ; with all scores below 0 too."""
    layer = deepseek.DeepseekV3TopkRouter(published())
    layer.weight.copy_(randn(512, 96, seed=1) / 10)
    layer.e_score_correction_bias.copy_(randn(512, seed=2) / 2 - lower)
    x = randn(200, 96, seed=3)
    logits, weight, chosen = layer(x)
    mine, mine_weight = moe.route(logits, layer.e_score_correction_bias, 8, 4, 8, 2.5)
    order, mine_order = chosen.sort(-1), mine.sort(-1)
    assert torch.equal(order.values, mine_order.values)
    torch.testing.assert_close(
        mine_weight.gather(1, mine_order.indices), weight.gather(1, order.indices)
    )
    by_score = torch.sigmoid(logits).topk(8, -1).indices.sort(-1).values
    assert float((by_score != order.values).any(-1).float().mean()) > 0.9


def test_norms_and_dense_layers_are_theirs() -> None:
    x, weight = randn(5, 96, seed=1), randn(96, seed=2)
    layer = deepseek.DeepseekV3RMSNorm(96, 1e-6)
    layer.weight.copy_(weight)
    torch.testing.assert_close(norms.rms_norm(x, weight, 1e-6), layer(x))
    torch.testing.assert_close(norms.l2_norm(x), theirs.l2norm(x))
    small = x * 1e-4  # of a size at which eps counts
    torch.testing.assert_close(norms.rms_norm(small, weight, 1e-6), layer(small))
    torch.testing.assert_close(norms.l2_norm(small), theirs.l2norm(small))
    feed = deepseek.DeepseekV3MLP(published(), intermediate_size=40)
    into = torch.cat([feed.gate_proj.weight, feed.up_proj.weight])
    torch.testing.assert_close(moe.dense(x, into, feed.down_proj.weight, 0), feed(x), **CLOSE)
