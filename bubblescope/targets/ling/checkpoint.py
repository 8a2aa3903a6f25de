"""Weights from safetensors files, by the names that the published checkpoints have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bubblescope.errors import BubblescopeError
from bubblescope.targets.ling.kda import Kda
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.mla import Mla
from bubblescope.targets.ling.model import Layer, Mtp
from bubblescope.targets.ling.moe import Dense, Moe

_UNUSED = re.compile(r"rotary_emb\.inv_freq$|^model\.mtp\.|\.(embed_tokens|shared_head\.head)\.")
"""Tensors that some checkpoints have beside those used: tables, and copies for the draft head."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as the checkpoint has it. shape: of what this rank needs. put: takes it over."""

    shape: tuple[int, ...]
    put: Callable[[Tensor], object]

    @classmethod
    def at(cls, target: Tensor) -> Stored:
        """One that is stored in the shape of `target`, which it is copied to."""
        return cls(tuple(target.shape), target.copy_)


def load(loop: Loop, directory: Path, ranks: int = 1, rank: int = 0) -> None:
    """Fill all weights of a loop: of the model and its draft head.

    Tensor-parallel ranks hold a slice of each tensor that is larger in the file, in the one
    dimension in which it is; only that slice is read. Other types than the loop's are converted.

    Args:
        loop: its config has the shapes of one rank.
        directory: with model.safetensors, or model.safetensors.index.json and its files.
        ranks: how many there are.
        rank: which of them, from 0.

    Raises:
        BubblescopeError: a tensor is missing, has another shape, or is none of the model's.
    """
    files = _files(directory)
    wanted = dict(stored(loop))
    for name in wanted.keys() - files.keys():
        raise BubblescopeError(f"{directory}: has no tensor {name}")
    for name in sorted(files.keys() - wanted.keys()):
        if not _UNUSED.search(name):
            raise BubblescopeError(f"{files[name]}: tensor {name} is none of this model's")
    by_file: dict[Path, list[str]] = {}
    for name in wanted:
        by_file.setdefault(files[name], []).append(name)
    with torch.no_grad():
        for path, names in by_file.items():
            with _opened(path) as file:
                for name in names:
                    found = file.get_slice(name)
                    part = _part(path, name, found.get_shape(), wanted[name].shape, ranks, rank)
                    wanted[name].put(found[part])


def stored(loop: Loop) -> Iterator[tuple[str, Stored]]:
    """Every tensor of a checkpoint that the loop needs, by name."""
    model = loop.model
    yield "model.word_embeddings.weight", Stored.at(model.embedding)
    yield "model.norm.weight", Stored.at(model.norm)
    yield "lm_head.weight", Stored.at(model.head)
    for number, layer in enumerate(model.layers):
        yield from _layer(f"model.layers.{number}.", layer)
    # The draft head is stored as one more layer; embedding and head are the model's.
    prefix = f"model.layers.{len(model.layers)}."
    yield from _layer(prefix, loop.mtp.layer)
    yield from _mtp(prefix, loop.mtp)


def _mtp(prefix: str, mtp: Mtp) -> Iterator[tuple[str, Stored]]:
    yield prefix + "enorm.weight", Stored.at(mtp.token_norm)
    yield prefix + "hnorm.weight", Stored.at(mtp.hidden_norm)
    yield prefix + "eh_proj.weight", Stored.at(mtp.join)
    yield prefix + "final_layernorm.weight", Stored.at(mtp.norm)


def _layer(prefix: str, layer: Layer) -> Iterator[tuple[str, Stored]]:
    yield prefix + "input_layernorm.weight", Stored.at(layer.attention_norm)
    yield prefix + "post_attention_layernorm.weight", Stored.at(layer.feed_norm)
    attention = layer.attention
    named = _kda(attention) if isinstance(attention, Kda) else _mla(attention)
    for name, tensor in named:
        yield f"{prefix}attention.{name}", tensor
    feed = layer.feed
    for name, tensor in _dense(feed) if isinstance(feed, Dense) else _moe(feed):
        yield f"{prefix}mlp.{name}", tensor


def _kda(kda: Kda) -> Iterator[tuple[str, Stored]]:
    for name, projection, kernel in zip("qkv", kda.qkv.chunk(3), kda.conv.chunk(3), strict=True):
        yield f"{name}_proj.weight", Stored.at(projection)
        yield f"{name}_conv1d.weight", Stored.at(kernel.unsqueeze(1))
    yield "f_proj.weight", Stored.at(kda.decay)
    yield "b_proj.weight", Stored.at(kda.beta)
    yield "g_proj.weight", Stored.at(kda.gate)
    yield "A_log", Stored.at(kda.a_log.squeeze(1))
    yield "dt_bias", Stored.at(kda.dt_bias.view(-1))
    yield "o_norm.weight", Stored.at(kda.norm)
    yield "o_proj.weight", Stored.at(kda.out)


def _mla(mla: Mla) -> Iterator[tuple[str, Stored]]:
    heads, size, rank = mla.key.shape

    def put(both: Tensor) -> None:
        """Of each head, what makes keys stands before what makes values."""
        by_head = both.view(heads, -1, rank)
        mla.key.copy_(by_head[:, :size])
        mla.value.copy_(by_head[:, size:])

    yield "q_proj.weight", Stored.at(mla.q)
    yield "kv_a_proj_with_mqa.weight", Stored.at(mla.kv)
    yield "kv_a_layernorm.weight", Stored.at(mla.kv_norm)
    yield "kv_b_proj.weight", Stored((heads * (size + mla.value.shape[1]), rank), put)
    yield "g_proj.weight", Stored.at(mla.gate)
    yield "dense.weight", Stored.at(mla.out)


def _dense(dense: Dense) -> Iterator[tuple[str, Stored]]:
    return _swiglu("", dense.into, dense.out)


def _moe(moe: Moe) -> Iterator[tuple[str, Stored]]:
    yield "gate.weight", Stored.at(moe.router)
    yield "gate.expert_bias", Stored.at(moe.bias)
    yield from _swiglu("shared_experts.", moe.shared.into, moe.shared.out)
    for number, (into, out) in enumerate(zip(moe.into, moe.out, strict=True)):
        yield from _swiglu(f"experts.{number}.", into, out)


def _swiglu(prefix: str, into: Tensor, out: Tensor) -> Iterator[tuple[str, Stored]]:
    gate, up = into.chunk(2)
    yield prefix + "gate_proj.weight", Stored.at(gate)
    yield prefix + "up_proj.weight", Stored.at(up)
    yield prefix + "down_proj.weight", Stored.at(out)


def _files(directory: Path) -> Mapping[str, Path]:
    """The file of every tensor."""
    index, single = directory / "model.safetensors.index.json", directory / "model.safetensors"
    if not index.exists():
        if not single.exists():
            raise BubblescopeError(f"{directory}: has neither {index.name} nor {single.name}")
        with _opened(single) as file:
            return dict.fromkeys(file.keys(), single)
    try:
        listed = json.loads(index.read_text())["weight_map"].items()
        return {name: directory / file for name, file in listed}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise BubblescopeError(f"{index}: is no index of safetensors files: {error}") from None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError:
        raise BubblescopeError(
            "target ling: a checkpoint needs safetensors, which is not installed; "
            "pip install 'bubblescope[ling]'"
        ) from None
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise BubblescopeError(f"{path}: cannot be read as safetensors: {error}") from None


def _part(
    path: Path, name: str, full: list[int], shape: tuple[int, ...], ranks: int, rank: int
) -> tuple[slice, ...]:
    """What a rank needs of a tensor: all, or its slice of the one dimension that is larger."""
    cut = [n for n, (all_, mine) in enumerate(zip(full, shape, strict=False)) if all_ != mine]
    fits = len(full) == len(shape) and (
        not cut or (ranks > 1 and len(cut) == 1 and full[cut[0]] == ranks * shape[cut[0]])
    )
    if not fits:
        raise BubblescopeError(
            f"{path}: tensor {name} has shape {full}; the model wants {list(shape)}"
            + (f" on each of {ranks} ranks" if ranks > 1 else "")
        )
    return tuple(
        slice(rank * mine, (rank + 1) * mine) if n in cut else slice(0, mine)
        for n, mine in enumerate(shape)
    )
