"""Weights and shapes of a checkpoint, by the names that the published ones have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors", reason="safetensors is not installed")

from safetensors.torch import load_file, save_file  # noqa: E402

from bubblescope.errors import BubblescopeError  # noqa: E402
from bubblescope.targets.ling import checkpoint, config_file  # noqa: E402
from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.kda import Kda  # noqa: E402
from bubblescope.targets.ling.loop import Loop  # noqa: E402
from bubblescope.targets.ling.mla import Mla  # noqa: E402
from bubblescope.targets.ling.moe import Dense, Moe  # noqa: E402
from bubblescope.targets.ling.target import Ling  # noqa: E402
from bubblescope.targets.ling.weights import Unset  # noqa: E402
from tests import ling_checkpoint as tiny  # noqa: E402


def loaded(directory: Path, dtype: torch.dtype = torch.float32) -> Loop:
    loop = Loop(config_file.read(directory), Unset(0, "cpu", dtype))
    checkpoint.load(loop, directory)
    return loop


def test_the_published_config_is_the_built_in_one(tmp_path: Path) -> None:
    """As third parties pin it; where the limits stop short of the layers, there is none."""
    published = tiny.CONFIG | {
        "hidden_size": 2560,
        "num_hidden_layers": 42,
        "layer_group_size": 6,
        "first_k_dense_replace": 2,
        "num_attention_heads": 32,
        "head_dim": 128,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "intermediate_size": 6144,
        "num_experts": 512,
        "num_experts_per_tok": 8,
        "n_group": 8,
        "topk_group": 4,
        "moe_intermediate_size": 768,
        "moe_shared_expert_intermediate_size": 768,
        "expert_swiglu_limit_list": [0] * 35 + [4] * 7,
        "share_expert_swiglu_limit_list": [None] * 34 + [5] * 6 + [7] * 2,
        "vocab_size": 157184,
        "max_position_embeddings": 131072,
        "bos_token_id": 156891,
        "eos_token_id": 156895,
    }
    folder = tmp_path / "Ling-3.0-flash"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(published))
    assert config_file.read(folder) == Config()
    published["expert_swiglu_limit_list"] = [0, 3]
    (folder / "config.json").write_text(json.dumps(published))
    assert config_file.read(folder).swiglu_limit == (0.0, 3.0) + (0.0,) * 40
    assert Config.tp4_rank() == replace(
        Config(),
        heads=8,
        dense_width=1536,
        expert_width=192,
        shared_width=192,
        vocabulary=39_296,
        first_token=1,
        last_token=-1,
        shard="the slice of one of 4 tensor-parallel ranks, without all-reduce",
    )


@pytest.mark.parametrize("files", [1, 3])
def test_every_tensor_is_where_it_belongs(tmp_path: Path, files: int) -> None:
    made = tiny.tensors(tiny.CONFIG)
    tiny.write(tmp_path, tiny.CONFIG, made, files)
    loop = loaded(tmp_path)
    model, mtp = loop.model, loop.mtp
    equal = torch.equal
    assert equal(model.embedding, made["model.word_embeddings.weight"])
    assert equal(model.head, made["lm_head.weight"])
    assert equal(model.norm, made["model.norm.weight"])
    for number, layer in enumerate([*model.layers, mtp.layer]):
        of = {
            n.removeprefix(f"model.layers.{number}."): t
            for n, t in made.items()
            if n.startswith(f"model.layers.{number}.")
        }
        assert equal(layer.attention_norm, of["input_layernorm.weight"])
        assert equal(layer.feed_norm, of["post_attention_layernorm.weight"])
        attention = layer.attention
        if number in (0, 2):
            assert isinstance(attention, Kda)
            qkv = [of[f"attention.{n}_proj.weight"] for n in "qkv"]
            conv = [of[f"attention.{n}_conv1d.weight"] for n in "qkv"]
            assert equal(attention.qkv, torch.cat(qkv))
            assert equal(attention.conv, torch.cat(conv).squeeze(1))
            assert equal(attention.decay, of["attention.f_proj.weight"])
            assert equal(attention.beta, of["attention.b_proj.weight"])
            assert equal(attention.gate, of["attention.g_proj.weight"])
            assert equal(attention.a_log.flatten(), of["attention.A_log"])
            assert equal(attention.dt_bias.flatten(), of["attention.dt_bias"])
            assert equal(attention.norm, of["attention.o_norm.weight"])
            assert equal(attention.out, of["attention.o_proj.weight"])
        else:
            assert isinstance(attention, Mla)
            assert equal(attention.q, of["attention.q_proj.weight"])
            assert equal(attention.kv, of["attention.kv_a_proj_with_mqa.weight"])
            assert equal(attention.kv_norm, of["attention.kv_a_layernorm.weight"])
            assert equal(attention.gate, of["attention.g_proj.weight"])
            assert equal(attention.out, of["attention.dense.weight"])
            both = of["attention.kv_b_proj.weight"]  # 4 heads of 16 rows for keys, 24 for values
            assert equal(attention.key[1], both[40:56])
            assert equal(attention.value[3], both[136:160])
        feed = layer.feed
        if number == 0:
            assert isinstance(feed, Dense)
            both = torch.cat([of["mlp.gate_proj.weight"], of["mlp.up_proj.weight"]])
            assert equal(feed.into, both)
            assert equal(feed.out, of["mlp.down_proj.weight"])
        else:
            assert isinstance(feed, Moe)
            assert equal(feed.router, of["mlp.gate.weight"])
            assert equal(feed.bias, of["mlp.gate.expert_bias"])
            assert equal(feed.shared.out, of["mlp.shared_experts.down_proj.weight"])
            assert equal(feed.shared.into[:20], of["mlp.shared_experts.gate_proj.weight"])
            assert equal(feed.into[11, :20], of["mlp.experts.11.gate_proj.weight"])
            assert equal(feed.into[11, 20:], of["mlp.experts.11.up_proj.weight"])
            assert equal(feed.out[11], of["mlp.experts.11.down_proj.weight"])
    last = {n.removeprefix("model.layers.4."): t for n, t in made.items()}
    assert equal(mtp.token_norm, last["enorm.weight"])
    assert equal(mtp.hidden_norm, last["hnorm.weight"])
    assert equal(mtp.join, last["eh_proj.weight"])
    assert equal(mtp.norm, last["final_layernorm.weight"])


def test_what_is_fp32_in_the_model_stays_so(tmp_path: Path) -> None:
    half = {n: t.bfloat16() for n, t in tiny.tensors(tiny.CONFIG).items()}
    tiny.write(tmp_path, tiny.CONFIG, half)
    loop = loaded(tmp_path, torch.bfloat16)
    kda, moe = loop.model.layers[0].attention, loop.model.layers[1].feed
    assert isinstance(kda, Kda)
    assert isinstance(moe, Moe)
    assert {t.dtype for t in (kda.conv, kda.a_log, kda.dt_bias, moe.router, moe.bias)} == {
        torch.float32
    }
    assert kda.qkv.dtype == moe.into.dtype == torch.bfloat16
    assert torch.equal(moe.bias, half["model.layers.1.mlp.gate.expert_bias"].float())


def test_the_ranks_of_a_layer_add_up_to_the_whole(tmp_path: Path) -> None:
    """What an all-reduce would sum is the whole layer's output, for every kind of layer."""
    tiny.write(tmp_path, tiny.CONFIG, tiny.tensors(tiny.CONFIG))
    whole = loaded(tmp_path)
    c, ranks = whole.config, 4
    x = torch.randn(c.window, c.hidden, generator=torch.Generator().manual_seed(2))
    places = torch.arange(c.window)
    table = torch.arange(c.context)
    from bubblescope.targets.ling.mla import Positions

    where = Positions(places, places, table)
    total: dict[int, torch.Tensor] = {}
    words = []
    with torch.no_grad():
        for rank in range(ranks):
            part = Loop(c.of_rank(ranks), Unset(0, "cpu", torch.float32))
            checkpoint.load(part, tmp_path, ranks, rank)
            words.append(part.model.head)
            for n, layer in enumerate(part.model.layers):
                kept = layer.attention
                out = kept(x, where) if isinstance(kept, Mla) else kept(x)
                total[2 * n] = total.get(2 * n, torch.zeros(())) + out
                total[2 * n + 1] = total.get(2 * n + 1, torch.zeros(())) + layer.feed(x)
        assert torch.equal(torch.cat(words), whole.model.head)
        for n, layer in enumerate(whole.model.layers):
            kept = layer.attention
            out = kept(x, where) if isinstance(kept, Mla) else kept(x)
            torch.testing.assert_close(total[2 * n], out, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(total[2 * n + 1], layer.feed(x), rtol=1e-4, atol=1e-5)


def test_each_layer_clamps_at_its_own_limits_and_the_draft_head_at_none(tmp_path: Path) -> None:
    routed, shared = [0, 0.5, 0, 0.25], [0, 0, 0.5, 0.125]
    lists = {"expert_swiglu_limit_list": routed, "share_expert_swiglu_limit_list": shared}
    made = tiny.tensors(tiny.CONFIG)
    tiny.write(tmp_path, tiny.CONFIG | lists, made)
    loop = loaded(tmp_path)
    x = 3 * torch.randn(5, 64, generator=torch.Generator().manual_seed(2))

    def swiglu(name: str, x: torch.Tensor, limit: float) -> torch.Tensor:
        gate = torch.nn.functional.silu(made[name + "gate_proj.weight"] @ x)
        up = made[name + "up_proj.weight"] @ x
        if limit:
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return made[name + "down_proj.weight"] @ (gate * up)

    layers = [*loop.model.layers, loop.mtp.layer]
    limits = zip(routed, shared, strict=True)
    for number, (limit, shared_limit) in enumerate([*list(limits)[1:], (0, 0)], 1):
        feed, prefix = layers[number].feed, f"model.layers.{number}.mlp."
        assert isinstance(feed, Moe)
        chosen, weight = feed.route(x)
        for t, row in enumerate(feed(x)):
            expected = swiglu(prefix + "shared_experts.", x[t], shared_limit)
            for expert, share in zip(chosen[t].tolist(), weight[t], strict=True):
                expected = expected + share * swiglu(f"{prefix}experts.{expert}.", x[t], limit)
            torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-5)


def test_the_loop_runs_a_checkpoint(tmp_path: Path) -> None:
    tiny.write(tmp_path, tiny.CONFIG, tiny.tensors(tiny.CONFIG), files=2)
    target = Ling("cpu", model=str(tmp_path), accept_length=0)
    assert target.config.first_token == 5
    assert target.config.context == 256
    target.start()
    for _ in range(12):
        target.step()
    target.stop()
    assert target.about()["weights"] == f"of {tmp_path}, fp32"
    plain = target.gated().plain(12)
    assert target.tokens[:12] == plain.tokens.tolist()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("q_lora_rank", 256, "q_lora_rank is 256; target ling runs only null"),
        ("kda_safe_gate", False, "kda_safe_gate is false; target ling runs only true"),
        ("architectures", ["Other"], r'architectures is \["Other"\]'),
        ("hidden_size", None, "has no hidden_size"),
        ("rope_theta", None, "has no rope_theta"),
        ("rope_scaling", {"type": "yarn"}, "rope_scaling is 'yarn'"),
    ],
)
def test_another_model_is_refused(tmp_path: Path, field: str, value: object, said: str) -> None:
    given = {n: v for n, v in (tiny.CONFIG | {field: value}).items() if n != "rope_theta" or v}
    (tmp_path / "config.json").write_text(json.dumps(given))
    with pytest.raises(BubblescopeError, match=said):
        config_file.read(tmp_path)


def test_bad_checkpoints_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BubblescopeError, match=r"config\.json: no such file"):
        Ling("cpu", model=str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BubblescopeError, match="cannot be read as JSON"):
        Ling("cpu", model=str(tmp_path))
    tiny.write(tmp_path, tiny.CONFIG, tiny.tensors(tiny.CONFIG))
    file = tmp_path / "model.safetensors"
    made = load_file(file)
    bias = "model.layers.1.mlp.gate.expert_bias"

    save_file({n: t for n, t in made.items() if n != bias}, file)
    with pytest.raises(BubblescopeError, match=f"has no tensor {bias}"):
        loaded(tmp_path)
    save_file(made | {"model.layers.0.attention.q_norm.weight": torch.ones(3)}, file)
    with pytest.raises(BubblescopeError, match=r"q_norm\.weight is none of this model's"):
        loaded(tmp_path)
    save_file(made | {bias: torch.ones(64)}, file)
    with pytest.raises(BubblescopeError, match=r"has shape \[64\]; the model wants \[16\]"):
        loaded(tmp_path)
    save_file(made | {"model.layers.1.attention.rotary_emb.inv_freq": torch.ones(3)}, file)
    loaded(tmp_path)  # a table that some checkpoints carry
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(BubblescopeError, match="cannot be read as safetensors"):
        loaded(tmp_path)
    file.unlink()
    with pytest.raises(BubblescopeError, match=r"has neither model\.safetensors\.index\.json nor"):
        loaded(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    with pytest.raises(BubblescopeError, match="is no index of safetensors files"):
        loaded(tmp_path)


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    tiny.write(tmp_path, tiny.CONFIG, tiny.tensors(tiny.CONFIG))
    with pytest.raises(BubblescopeError, match="has no 3 equal ranks"):
        Ling("cpu", model=str(tmp_path), tp=3)
    with pytest.raises(BubblescopeError, match="runs with all its layers"):
        Ling("cpu", model=str(tmp_path), layers=2)
    with pytest.raises(BubblescopeError, match="--tp is for a --model"):
        Ling("cpu", tp=4)
