"""The embedded loop's model with its parts replaced by kernels, each alone or together.

Parts, by name: "bf16 gate" and "bf16 lm_head" (weights in bf16, sums and results in fp32); "router"
(gate, choice and experts); "fused KDA verify" (from the convolution to the gated norm, and one
commit for all layers); "pdl" (norms, projections and MLA too, so that layers are one chain in which
every kernel begins while the one before ends). Layers keep the loop's weights and buffers.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from bubblescope.targets.ling.kda import Kda
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.mla import Mla, Positions
from bubblescope.targets.ling.model import Layer, Model, Mtp
from bubblescope.targets.ling.moe import Dense, Moe
from bubblescope.targets.ling.reference import kda as plain_kda
from bubblescope.targets.ling.reference import moe as plain_moe
from bubblescope.targets.ling.reference.linear import project_fp32
from bubblescope.targets.ling.reference.norms import rms_norm
from bubblescope.targets.ling.reference.rope import rope_table
from optimizations.kernels import argmax, attend, experts, join, mla, project, router, staged_kda

PARTS = frozenset({"bf16 gate", "bf16 lm_head", "router", "fused KDA verify", "pdl"})


def replaced(target: Any, *parts: str) -> AbstractContextManager[None]:
    """Put parts of the target `ling` on kernels until this exits. parts: names of `PARTS`.

    Raises:
        NotOffered: the target's device runs no Triton kernels.
    """
    unknown = set(parts) - PARTS
    if unknown:
        raise ValueError(f"no such parts: {', '.join(sorted(unknown))}")
    on: AbstractContextManager[None] = target.parts.replaced(frozenset(parts), fit)
    return on


def fit(loop: Loop, parts: frozenset[str], shared: dict[str, Any]) -> tuple[Model, Mtp]:
    """See `bubblescope.targets.ling.parts.Fit`."""
    c = loop.config
    if "rope" not in shared:
        shared["rope"] = rope_table(c.context, c.rope_dim, c.rope_theta, str(loop.length.device))
    limits = [*zip(c.swiglu_limit, c.shared_swiglu_limit, strict=True), (0.0, 0.0)]
    layers = [
        KernelLayer(layer, loop, parts, limit, _stored(shared, n))
        for n, (layer, limit) in enumerate(
            zip([*loop.model.layers, loop.mtp.layer], limits, strict=True)
        )
    ]
    for layer in layers:
        layer.rope = shared["rope"]
    head = loop.model.head
    if "bf16 lm_head" in parts and head.dtype != torch.bfloat16:
        head = _once(shared, "head", head.bfloat16)
    model = KernelModel(loop.model, layers[:-1], parts, head)
    return model, KernelMtp(loop.mtp, model, layers[-1])


def _stored(shared: dict[str, Any], layer: int) -> dict[str, Any]:
    made: dict[str, Any] = shared.setdefault(f"layer {layer}", {})
    return made


def _once(shared: dict[str, Any], name: str, make: Any) -> Any:
    if name not in shared:
        shared[name] = make()
    return shared[name]


class KernelModel(Model):
    """The same weights and buffers, other layers. head: what logits are made with."""

    def __init__(
        self, plain: Model, layers: list[KernelLayer], parts: frozenset[str], head: Tensor
    ) -> None:
        self.__dict__.update(plain.__dict__)
        self.layers = list[Layer](layers)
        self._parts, self._kernel_head = parts, head
        self.pdl = "pdl" in parts
        self._commit: staged_kda.Commit | None = None
        if "fused KDA verify" in parts and self.kda():
            self._commit = staged_kda.Commit(
                [(a.state, a.staged_state, a.history, a.staged_history) for a in self.kda()]
            )

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Model.logits`."""
        if "bf16 lm_head" not in self._parts:
            return super().logits(hidden)
        # The library's product: for 6 tokens on an H200 it took 57 us, and `project` 87.
        return project_fp32(hidden.to(self._kernel_head.dtype), self._kernel_head)

    def commit(self, accepted: Tensor) -> None:
        """See `Model.commit`."""
        if self._commit is None:
            super().commit(accepted)
        else:
            self._commit(accepted, pdl=self.pdl)


class KernelMtp(Mtp):
    """The same weights and buffers, another layer."""

    def __init__(self, plain: Mtp, model: KernelModel, layer: KernelLayer) -> None:
        self.__dict__.update(plain.__dict__)
        self.layer: Layer = layer
        self._model: KernelModel = model

    def __call__(self, tokens: Tensor, hidden: Tensor, where: Positions) -> Tensor:
        """See `Mtp`."""
        if not self._model.pdl:
            return super().__call__(tokens, hidden, where)
        embedding, norms = self._model.embedding, (self.token_norm, self.hidden_norm)
        x = join.join(tokens, embedding, hidden, *norms, self.join, eps=self._eps, pdl=True)
        return rms_norm(self.layer(x, where), self.norm, self._eps)

    def next_token(self, hidden: Tensor) -> Tensor:
        """See `Mtp.next_token`."""
        logits = self._model.logits(hidden)
        return argmax.argmax(logits, pdl=True) if self._model.pdl else logits.argmax(-1)


class KernelLayer(Layer):
    """The same weights and buffers. limits: of SwiGLU, of the routed experts and the shared one.

    shared: weights joined for one kernel, made once for all variants of the loop.
    """

    def __init__(
        self,
        plain: Layer,
        loop: Loop,
        parts: frozenset[str],
        limits: tuple[float, float],
        shared: dict[str, Any],
    ) -> None:
        self.__dict__.update(plain.__dict__)
        self._c, self._parts, self._limits, self._shared = loop.config, parts, limits, shared
        self._pdl = "pdl" in parts
        self.rope: tuple[Tensor, Tensor] = (loop.length, loop.length)
        if self._pdl:
            self._joined = _once(shared, "joined", self._join)
        if "bf16 gate" in parts and isinstance(self.feed, Moe):
            self._gate = _once(shared, "gate", self.feed.router.bfloat16)

    def _join(self) -> Tensor:
        """The input projections as one weight; a copy, 1 GB for a rank's 43 layers.

        Theirs stay where they are: graphs that were captured before go on reading them there.
        """
        a = self.attention
        names = ("qkv", "decay", "gate", "beta") if isinstance(a, Kda) else ("q", "kv", "gate")
        return torch.cat([getattr(a, name) for name in names])

    def __call__(self, x: Tensor, where: Positions) -> Tensor:
        """See `Layer`."""
        if isinstance(self.attention, Kda):
            x = self._kda(self.attention, x)
        elif self._pdl:
            x = self._mla(self.attention, x, where)
        else:
            x = x + self.attention(rms_norm(x, self.attention_norm, self._c.eps), where)
        if isinstance(self.feed, Moe):
            return self._moe(self.feed, x)
        if self._pdl:
            return self._dense(self.feed, x)
        return x + self.feed(rms_norm(x, self.feed_norm, self._c.eps))

    def _projected(self, x: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        """All input projections in one kernel; rows begin at multiples of 16 values."""
        room = x.new_empty(len(x), -(-sum(sizes) // 16) * 16)
        out = room[:, : sum(sizes)]
        norm = self.attention_norm
        project.project(x, self._joined, norm=norm, eps=self._c.eps, out=out, pdl=True)
        parts: tuple[Tensor, ...] = out.split(sizes, 1)
        return parts

    def _kda(self, a: Kda, x: Tensor) -> Tensor:
        c, tokens = self._c, len(x)
        inner = c.heads * c.head_dim
        if self._pdl:
            qkv, f, gate, b = self._projected(x, [3 * inner, inner, inner, c.heads])
        else:
            normed = rms_norm(x, self.attention_norm, c.eps)
            weights = (a.qkv, a.decay, a.gate, a.beta)
            qkv, f, gate, b = (normed @ weight.t() for weight in weights)
        if "fused KDA verify" in self._parts:
            out = staged_kda.staged_kda(
                qkv,
                f,
                b,
                a.conv,
                a.a_log,
                a.dt_bias,
                a.state,
                a.history,
                staged_state=a.staged_state,
                staged_history=a.staged_history,
                bound=c.gate_bound,
                pdl=self._pdl,
            )
            return project.project(
                out,
                a.out,
                norm=a.norm,
                gate=gate,
                residual=x,
                eps=c.eps,
                dtype=x.dtype,
                pdl=self._pdl,
            )
        out, states, histories = plain_kda.kda(
            qkv,
            f,
            b,
            gate,
            a.conv,
            a.a_log,
            a.dt_bias,
            a.norm,
            a.state,
            a.history,
            c.gate_bound,
            c.eps,
        )
        a.staged_state[:tokens].copy_(states)
        a.staged_history[:tokens].copy_(histories)
        out = out.to(x.dtype)
        if self._pdl:
            return project.project(out, a.out, residual=x, pdl=True)
        return x + out @ a.out.t()

    def _mla(self, a: Mla, x: Tensor, where: Positions) -> Tensor:
        c = self._c
        sizes = [c.heads * (c.nope_dim + c.rope_dim), c.kv_rank + c.rope_dim, c.heads]
        q, kv, gate = self._projected(x, sizes)
        queries = mla.prepare(
            q,
            kv,
            a.key,
            a.kv_norm,
            *self.rope,
            where.at,
            where.slots,
            a.cache,
            eps=c.eps,
            pdl=True,
        )
        scale = (c.nope_dim + c.rope_dim) ** -0.5
        seen = attend.attend(
            queries, a.cache, where.at, where.table, rank=c.kv_rank, scale=scale, pdl=True
        )
        out = mla.values(seen, a.value, gate, pdl=True)
        return project.project(out, a.out, residual=x, pdl=True)

    def _dense(self, feed: Dense, x: Tensor) -> Tensor:
        both = project.project(x, feed.into, norm=self.feed_norm, eps=self._c.eps, pdl=True)
        return project.project(both, feed.out, swiglu_limit=0.0, residual=x, pdl=True)

    def _moe(self, feed: Moe, x: Tensor) -> Tensor:
        c, bf16 = self._c, "bf16 gate" in self._parts
        weight_of_gate = self._gate if bf16 else feed.router
        if "router" not in self._parts:
            if not bf16:
                return x + feed(rms_norm(x, self.feed_norm, c.eps))
            logits, normed = router.gate(
                x, weight_of_gate, norm=self.feed_norm, eps=c.eps, pdl=self._pdl
            )
            chosen, weight = plain_moe.route(
                logits, feed.bias, c.expert_groups, c.top_groups, c.top_experts, c.routed_scale
            )
            feed.chosen = chosen
            routed = plain_moe.experts(normed, feed.into, feed.out, chosen, weight, self._limits[0])
            return x + (routed + feed.shared(normed))
        logits, normed = router.gate(
            x, weight_of_gate, norm=self.feed_norm, eps=c.eps, pdl=self._pdl
        )
        chosen, weight = router.choose(
            logits,
            feed.bias,
            groups=c.expert_groups,
            top_groups=c.top_groups,
            top=c.top_experts,
            scale=c.routed_scale,
            pdl=self._pdl,
        )
        feed.chosen = chosen
        return experts.experts(
            normed,
            feed.into,
            feed.out,
            feed.shared.into,
            feed.shared.out,
            chosen,
            weight,
            limit=self._limits[0],
            shared_limit=self._limits[1],
            residual=x,
            pdl=self._pdl,
        )
