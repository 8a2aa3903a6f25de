"""Shapes of Ling-3.0-flash, of one rank of it, and of a tiny model of the same kind."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bubblescope.errors import BubblescopeError


@dataclass(frozen=True, slots=True)
class Config:
    """Shapes as a rank holds them. Defaults: Ling-3.0-flash, whole (124 B parameters).

    group: every group-th layer is MLA, the others KDA. swiglu_limit, shared_swiglu_limit: of each
    layer, 0 for none. drafts: tokens drafted a step; a step verifies one more. context: positions
    that the caches hold; page: positions a page. request: new tokens after which one ends.
    """

    hidden: int = 2560
    layers: int = 42
    group: int = 6
    dense_layers: int = 2
    heads: int = 32
    head_dim: int = 128
    conv_width: int = 4
    gate_bound: float = -5.0
    kv_rank: int = 512
    nope_dim: int = 128
    rope_dim: int = 64
    value_dim: int = 128
    rope_theta: float = 6e6
    dense_width: int = 6144
    experts: int = 512
    expert_groups: int = 8
    top_groups: int = 4
    top_experts: int = 8
    expert_width: int = 768
    shared_width: int = 768
    routed_scale: float = 2.5
    swiglu_limit: tuple[float, ...] = (0.0,) * 35 + (4.0,) * 7
    shared_swiglu_limit: tuple[float, ...] = (0.0,) * 34 + (5.0,) * 6 + (7.0,) * 2
    vocabulary: int = 157_184
    eps: float = 1e-6
    drafts: int = 5
    context: int = 16_384
    page: int = 64
    request: int = 1024
    first_token: int = 156_891
    last_token: int = 156_895
    name: str = "Ling-3.0-flash"
    shard: str = "whole"

    @property
    def window(self) -> int:
        """Tokens that a step verifies: the last one and its drafts."""
        return self.drafts + 1

    def is_mla(self, layer: int) -> bool:
        """Whether a layer (0-based) is MLA."""
        return (layer + 1) % self.group == 0

    def with_layers(self, layers: int) -> Config:
        """The same with fewer layers: it keeps the limits of the last ones.

        Raises:
            BubblescopeError: it has not so many.
        """
        if not 1 <= layers <= self.layers:
            raise BubblescopeError(f"target ling: has {self.layers} layers, so 1 to {self.layers}")
        return replace(
            self,
            layers=layers,
            swiglu_limit=self.swiglu_limit[-layers:],
            shared_swiglu_limit=self.shared_swiglu_limit[-layers:],
        )

    def of_rank(self, ranks: int) -> Config:
        """What each of so many tensor-parallel ranks holds; token ids are those of its vocabulary.

        Raises:
            BubblescopeError: it cannot be divided so.
        """
        names = ("heads", "dense_width", "expert_width", "shared_width", "vocabulary")
        shapes = {name: getattr(self, name) for name in names}
        if not all(size % ranks == 0 for size in shapes.values()):
            raise BubblescopeError(f"target ling: {self.name} has no {ranks} equal ranks")
        return replace(
            self,
            **{name: size // ranks for name, size in shapes.items()},
            first_token=1,
            last_token=-1,
            shard=f"the slice of one of {ranks} tensor-parallel ranks, without all-reduce",
        )

    @classmethod
    def tp4_rank(cls) -> Config:
        """What one of four tensor-parallel ranks holds: 63 GB in bf16."""
        return cls().of_rank(4)

    @classmethod
    def tiny(cls) -> Config:
        """The same structure, small enough for one CPU thread."""
        return cls(
            hidden=64,
            layers=3,
            group=3,
            dense_layers=1,
            heads=2,
            head_dim=32,
            kv_rank=32,
            nope_dim=32,
            rope_dim=16,
            value_dim=32,
            dense_width=128,
            experts=16,
            expert_groups=4,
            top_groups=2,
            top_experts=2,
            expert_width=32,
            shared_width=32,
            swiglu_limit=(0.0, 0.0, 4.0),
            shared_swiglu_limit=(0.0, 5.0, 7.0),
            vocabulary=512,
            drafts=3,
            context=512,
            page=16,
            request=480,
            first_token=1,
            last_token=-1,
            name="a tiny model of Ling-3.0-flash's structure",
        )
