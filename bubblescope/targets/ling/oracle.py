"""Drafts replayed from a known sequence, with errors; and a log of what the model made of them.

Both are operations of the device, queued around verify: no host is asked, so passes that keep the
sequence length on the device are checked as they run.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bubblescope.targets.gated import Drafts, Tokens
from bubblescope.targets.ling.device import scope
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.snapshot import as_array, routed


class Oracle:
    """Buffers of one replay of at most `steps` steps, on the loop's device."""

    def __init__(self, loop: Loop, drafts: Drafts, steps: int) -> None:
        self._loop, self._forced = loop, drafts.forced
        c, device = loop.config, loop.length.device
        self._tokens = _padded(drafts.tokens, c.context + c.window, device)
        self._right = torch.tensor(drafts.right, device=device)
        # Added to the right token, so that the wrong one is any other.
        shifts = np.random.default_rng(drafts.seed).integers(1, c.vocabulary, len(drafts.right))
        self._shifts = torch.from_numpy(shifts).to(device)
        self._ahead = torch.arange(c.drafts, device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._accepted = torch.zeros(steps, dtype=torch.int64, device=device)
        self._routed = [m for m in routed(loop) if m.chosen is not None]
        shape = (c.context, len(self._routed), c.top_experts)
        self._experts = torch.zeros(shape, dtype=torch.int64, device=device)

    def draft(self) -> None:
        """Before verify: drafts for the positions after the length as the device knows it."""
        loop = self._loop
        with scope("oracle"):
            right = self._tokens[loop.length + self._ahead]
            turn = self._step % len(self._right)
            wrong = (right + self._shifts[turn]) % loop.config.vocabulary
            loop.drafts.copy_(torch.where(self._ahead == self._right[turn], wrong, right))
            if self._forced:
                last = self._tokens[(loop.length - 1).clamp(min=0)]
                loop.token.copy_(torch.where(loop.length > 0, last, loop.token))

    def log(self) -> None:
        """After verify, before commit: what was accepted, and the experts of each position.

        A position that is verified again is logged again: the last time is when it was kept.
        """
        loop = self._loop
        with scope("log"):
            self._accepted.index_copy_(0, self._step, loop.accepted)
            chosen = [m.chosen for m in self._routed if m.chosen is not None]
            if chosen:
                at = loop.length + torch.arange(loop.config.window, device=loop.length.device)
                self._experts.index_copy_(0, at, torch.stack(chosen, 1))
            self._step.add_(1)

    def reset(self) -> None:
        """From the first step again."""
        self._step.zero_()

    def accepted(self) -> Tokens:
        """Drafts accepted of each step logged. The device must be idle."""
        return as_array(self._accepted[: int(self._step)])

    def experts(self) -> Tokens | None:
        """Chosen experts of every committed position. The device must be idle."""
        return as_array(self._experts[: int(self._loop.length)]) if self._routed else None


def _padded(tokens: tuple[int, ...], size: int, device: torch.device) -> Tensor:
    made = torch.zeros(size, dtype=torch.int64)
    made[: len(tokens)] = torch.tensor(tokens)
    return made.to(device)
