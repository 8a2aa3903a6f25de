"""The model and its draft head: layers in order, from tokens to hidden states and logits."""

from __future__ import annotations

from torch import Tensor

from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.device import scope
from bubblescope.targets.ling.kda import Kda
from bubblescope.targets.ling.mla import Mla, Positions
from bubblescope.targets.ling.moe import Dense, Moe
from bubblescope.targets.ling.reference.linear import project_fp32
from bubblescope.targets.ling.reference.mtp import join
from bubblescope.targets.ling.reference.norms import rms_norm
from bubblescope.targets.ling.weights import Weights


class Layer:
    """Attention and feed-forward, each behind a norm and added to its input."""

    def __init__(
        self, config: Config, attention: Mla | Kda, feed: Dense | Moe, weights: Weights
    ) -> None:
        self._eps = config.eps
        self.attention_norm = weights.near_one(config.hidden)
        self.attention = attention
        self.feed_norm = weights.near_one(config.hidden)
        self.feed = feed

    @classmethod
    def of(cls, config: Config, index: int, weights: Weights) -> Layer:
        """Layer `index` of the model, from 0."""
        c = config
        return cls(
            c,
            Mla(c, weights) if c.is_mla(index) else Kda(c, weights),
            Dense(c.hidden, c.dense_width, 0, weights)
            if index < c.dense_layers
            else Moe(c, c.swiglu_limit[index], c.shared_swiglu_limit[index], weights),
            weights,
        )

    def __call__(self, x: Tensor, where: Positions) -> Tensor:
        """x: (tokens, hidden)."""
        with scope("norm"):
            normed = rms_norm(x, self.attention_norm, self._eps)
        if isinstance(self.attention, Mla):
            x = x + self.attention(normed, where)
        else:
            x = x + self.attention(normed)
        with scope("norm"):
            normed = rms_norm(x, self.feed_norm, self._eps)
        return x + self.feed(normed)


class Model:
    """The target model. Its KDA layers stage their states: see `commit`."""

    def __init__(self, config: Config, weights: Weights) -> None:
        c = config
        self._eps = c.eps
        self.embedding = weights.normal(c.vocabulary, c.hidden, std=1.0)
        self.layers = [Layer.of(c, index, weights) for index in range(c.layers)]
        self.norm = weights.near_one(c.hidden)
        # In fp32, as SGLang had it before the fix that the pass bf16-lm-head is.
        self.head = weights.linear(c.vocabulary, c.hidden).float()

    def __call__(self, tokens: Tensor, where: Positions) -> Tensor:
        """Hidden states (tokens, hidden) of tokens that follow what was committed.

        They are behind the last norm: so both heads take them.
        """
        with scope("embed"):
            x = self.embedding[tokens]
        for layer in self.layers:
            x = layer(x, where)
        with scope("norm"):
            return rms_norm(x, self.norm, self._eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """(tokens, vocabulary), fp32."""
        with scope("lm head"):
            return project_fp32(hidden, self.head)

    def commit(self, accepted: Tensor) -> None:
        """Keep the states after token `accepted`, int64 (1,), of the last call."""
        for layer in self.kda():
            layer.commit(accepted)

    def kda(self) -> list[Kda]:
        """The layers with a state."""
        return [x.attention for x in self.layers if isinstance(x.attention, Kda)]

    def reset(self) -> None:
        """An empty sequence."""
        for layer in self.kda():
            layer.reset()


class Mtp:
    """The draft head (multi-token prediction): one MLA layer over a token and a hidden state.

    At position p it takes the token at p + 1 and the hidden state at p, and predicts p + 2.
    Embedding and head are the model's.
    """

    def __init__(self, config: Config, model: Model, weights: Weights) -> None:
        c = config
        self._eps, self._model = c.eps, model
        self.token_norm = weights.near_one(c.hidden)
        self.hidden_norm = weights.near_one(c.hidden)
        self.join = weights.linear(c.hidden, 2 * c.hidden)
        self.layer = Layer(c, Mla(c, weights), Moe(c, 0, 0, weights), weights)
        self.norm = weights.near_one(c.hidden)

    def __call__(self, tokens: Tensor, hidden: Tensor, where: Positions) -> Tensor:
        """Hidden states (tokens, hidden) behind the last norm, to be fed back for the next draft.

        hidden: the model's, or what this gave before.
        """
        with scope("mtp.join"):
            embedded = self._model.embedding[tokens]
            x = join(embedded, hidden, self.token_norm, self.hidden_norm, self.join, self._eps)
        x = self.layer(x, where)
        with scope("mtp.norm"):
            return rms_norm(x, self.norm, self._eps)

    def next_token(self, hidden: Tensor) -> Tensor:
        """The most likely tokens, int64 (tokens,)."""
        with scope("mtp.head"):
            return project_fp32(hidden, self._model.head).argmax(-1)
