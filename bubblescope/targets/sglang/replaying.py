"""In the scheduler's process: known drafts in place of the draft model's, and what came of them.

All of it is queued on the stream of the stages and reads nothing back, so that the engine runs
ahead as it does otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubblescope.targets.sglang import snapshot

CYCLES_PER_NS = 1.7
"""Of a spinning kernel, for delays: at about the clock of a busy H200."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to do in the next generation.

    name: of the file to write. prompt: tokens of it. known: the sequence, from the first token that
    is given out. right: drafts of each step before the first wrong one; none: the engine does not
    speculate, and goes along `known` where there is one. seed, forced, delay_ns: as in
    `bubblescope.targets.gated`. count: of tokens to look at without speculation. logits: keep them.
    """

    name: str
    prompt: int
    known: list[int]
    right: list[int]
    seed: int = 0
    forced: bool = False
    delay_ns: int = 0
    count: int = 0
    logits: bool = False


class Replay:
    """Hooks around drafting, verifying and sampling; they do nothing without an order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._scheduler: Any = None
        self._order: Order | None = None
        self._problem = ""

    def begin(self, scheduler: Any, **order: Any) -> None:
        """Of the generation that follows."""
        import torch

        self._scheduler, self._order, self._problem = scheduler, Order(**order), ""
        where = "cuda" if torch.cuda.is_available() else "cpu"
        self._known = torch.tensor(self._order.known or [0], device=where)
        self._random = random.Random(self._order.seed)
        self._lengths: Any = None
        self._request: Any = None
        self._state: dict[str, Any] = {}
        self._said: list[Any] = []
        self._accepted: list[Any] = []
        self._logits: list[Any] = []

    def end(self, rank: int) -> None:
        """Write what there is.

        Raises:
            RuntimeError: the generation ended before the last step, or its state cannot be had.
        """
        import numpy as np
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        order, self._order = self._order, None
        if order is None:
            raise RuntimeError("no replay was begun")
        if self._problem:
            self._state = {}
            raise RuntimeError(self._problem)
        if not self._state:
            raise RuntimeError(f"the generation ended after {len(self._said)} steps")
        state = snapshot.cut(self._state, order.prompt)
        arrays = {f"state {name}": _array(value) for name, value in state.items()}
        arrays |= {
            "said": _stacked(self._said),
            "accepted": _stacked(self._accepted),
            "logits": _stacked(self._logits),
        }
        self._state, self._logits = {}, []
        path = self._folder / f"{order.name}-{rank}.npz"
        draft = path.with_suffix(".draft.npz")
        np.savez(draft, **arrays)
        draft.replace(path)

    def draft(
        self,
        original: Callable[..., Any],
        batch: Any,
        given: Any,
        parents: Any,
        scores: Any,
        tokens: Any,
        *more: Any,
        **named: Any,
    ) -> Any:
        """Around `build_eagle_verify_input`: its `tokens` (1, drafts) are replaced."""
        order = self._order
        if order is not None and order.right and not batch.forward_mode.is_idle():
            self._request = batch.req_pool_indices
            # A step has sampled, committed and extended when the next one's drafts are there.
            if len(self._said) == len(order.right) and not self._state:
                self._keep(batch.seq_lens)
            if not self._state:
                self._delay()
                self._lengths = batch.seq_lens.clone()
                tokens = self._drafts(order, tokens)
        return original(batch, given, parents, scores, tokens, *more, **named)

    def sample_verified(
        self, original: Callable[..., Any], verify: Any, batch: Any, logits: Any, *a: Any, **k: Any
    ) -> Any:
        """Around `eagle_sample`."""
        if self._order is not None and self._order.right and not self._state:
            self._delay()
            if self._order.logits:
                self._logits.append(logits.next_token_logits.float().clone())
        return original(verify, batch, logits, *a, **k)

    def verify(self, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Around `verify_tree_greedy_func`: what the model says, and how many drafts it takes."""
        order = self._order
        if order is None or not order.right or self._state:
            return original(*args, **named)
        said = named["target_predict"]
        self._said.append(said.reshape(-1).clone())
        if order.forced:
            named["target_predict"] = self._next(said.shape[-1]).to(said.dtype).view_as(said)
        made = original(*args, **named)
        self._accepted.append(made[2].reshape(-1).clone())
        return made

    def sample(
        self, original: Callable[..., Any], sampler: Any, output: Any, *a: Any, **k: Any
    ) -> Any:
        """Around `Sampler.forward`: of the prompt, and of each step without speculation."""
        made = original(sampler, output, *a, **k)
        order = self._order
        if order is None or self._state or (order.right and self._said):
            return made
        if order.logits:
            self._logits.append(output.next_token_logits.float().clone())
        if order.right:
            return made
        self._said.append(made.reshape(-1).clone())
        number = len(self._said)
        if order.known:
            made = self._known[number - 1 : number].to(made.dtype).view_as(made)
        if number == order.count:
            self._keep(None)
        return made

    def request(self, batch: Any) -> None:
        """Before each batch: whose state it is."""
        if self._order is not None:
            self._request = batch.req_pool_indices

    def _drafts(self, order: Order, given: Any) -> Any:
        """(1, drafts): the sequence, wrong from the planted error on."""
        step, width = len(self._said), given.shape[-1]
        tokens = self._next(width)
        right = order.right[step]
        if right < width:
            vocabulary = self._scheduler.tp_worker.model_runner.model_config.vocab_size
            off = random.Random(order.seed + step).randrange(1, vocabulary)
            tokens[right:] = (tokens[right:] + off) % vocabulary
        return tokens.to(given.dtype).view_as(given)

    def _next(self, count: int) -> Any:
        """The known tokens after that with which the step begins."""
        import torch

        first = self._lengths.reshape(-1)[:1] - self._prompt + 1
        at = first + torch.arange(count, device=first.device)
        return self._known[at.clamp(0, len(self._known) - 1)]

    @property
    def _prompt(self) -> int:
        assert self._order is not None
        return self._order.prompt

    def _keep(self, lengths: Any) -> None:
        try:
            self._state = snapshot.state(
                self._scheduler, self._request, lengths, self._prompt, len(self._said)
            )
        except (AttributeError, RuntimeError) as error:  # the engine must go on
            self._problem = f"the state of this model cannot be read: {error}"
            self._state = {"": None}  # the rest of the generation is not looked at

    def _delay(self) -> None:
        import torch

        if self._order is not None and self._order.delay_ns and self._random.random() < 1 / 8:
            torch.cuda._sleep(int(self._order.delay_ns * CYCLES_PER_NS))


def _array(value: Any) -> Any:
    import torch

    wide = value.float() if value.dtype is torch.bfloat16 else value
    return wide.cpu().numpy()


def _stacked(values: list[Any]) -> Any:
    import numpy as np

    return np.concatenate([_array(value) for value in values]) if values else np.zeros(0)
