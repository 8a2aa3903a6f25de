"""The stages of a decode step with speculation, and what they keep on the device.

A step drafts tokens by the MTP head, verifies them by the model, commits the state after the last
one accepted, and extends the draft head's cache by what was accepted. No stage reads anything back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.device import scope
from bubblescope.targets.ling.mla import Positions
from bubblescope.targets.ling.model import Model, Mtp
from bubblescope.targets.ling.weights import Weights


class Loop:
    """Model, draft head and buffers of one sequence.

    length: tokens committed, int64 (1,). token: the one after them, not yet in any cache, (1,).
    drafts: guesses after that, (drafts,). plan: positions and cache slots of the tokens that a
    step verifies, (2, window). table: slot of every position, (context,).
    accepted: drafts accepted last, (1,). result: tokens that a step gave, then how many drafts it
    accepted, (window + 1,); only the first accepted + 1 tokens count.
    schedule: see accept.py; None: what the model itself would have said decides.
    """

    def __init__(self, config: Config, weights: Weights, schedule: Tensor | None = None) -> None:
        self.config = c = config
        self.model = Model(c, weights)
        self.mtp = Mtp(c, self.model, weights)
        self.schedule = schedule
        self.length = weights.integers(1)
        self.token = weights.integers(1) + c.first_token
        self.drafts = weights.integers(c.drafts)
        self.plan = weights.integers(2, c.window)
        self.table = weights.integers(c.context)
        self.accepted = weights.integers(1)
        self.result = weights.integers(c.window + 1)
        self._steps = weights.integers(1)
        self._ahead = torch.arange(c.window, device=weights.device)
        self._draft_hidden = weights.zeros(1, c.hidden)
        self._hidden = weights.zeros(c.window, c.hidden)

    def private(self) -> list[Tensor]:
        """Buffers that go from one step to the next and are nobody else's business."""
        return [self._steps, self._draft_hidden, self._hidden]

    def plan_and_draft(self) -> None:
        """`draft`, after a plan from the length as the device knows it: no host is asked."""
        with scope("plan"):
            at = self.length + self._ahead
            self.plan[0].copy_(at)
            self.plan[1].copy_(self.table[at])
        self.draft()

    def where(self) -> Positions:
        """The plan as the layers want it."""
        return Positions(self.plan[0], self.plan[1], self.table)

    def draft(self) -> None:
        """Guess tokens one after the other; the first guess was made by `extend`."""
        hidden, token, where = self._draft_hidden, self.drafts[:1], self.where()
        for n in range(1, self.config.drafts):
            hidden = self.mtp(token, hidden, where.rows(n - 1, n))
            token = self.mtp.next_token(hidden)
            self.drafts[n : n + 1].copy_(token)

    def verify(self) -> None:
        """Run the model over the token and its drafts, and decide how many were right."""
        drafts = self.drafts
        hidden = self.model(torch.cat([self.token, drafts]), self.where())
        self._hidden.copy_(hidden)
        said = self.model.logits(hidden).argmax(-1)
        with scope("accept"):
            if self.schedule is None:
                right = (drafts == said[:-1]).to(torch.int64)
                self.accepted.copy_(right.cumprod(0).sum(0, keepdim=True))
            else:
                at = self._steps % len(self.schedule)
                self.accepted.copy_(self.schedule[at])
                self._steps.add_(1)
            padded = torch.cat([drafts, said[-1:]])
            self.result[:-1].copy_(torch.where(self._ahead < self.accepted, padded, said))
            self.result[-1:].copy_(self.accepted)

    def commit(self) -> None:
        """Keep what was accepted: the states after it, the length, and the token after that."""
        self.model.commit(self.accepted)
        with scope("commit"):
            self.length.add_(self.accepted + 1)
            self.token.copy_(self.result[self.accepted])

    def extend(self) -> None:
        """Run the draft head over the tokens that the step gave, and make the next first guess."""
        hidden = self.mtp(self.result[:-1], self._hidden, self.where())
        with scope("extend"):
            last = hidden.index_select(0, self.accepted)
            self._draft_hidden.copy_(last)
        self.drafts[:1].copy_(self.mtp.next_token(last))

    def reset(self) -> None:
        """Begin a sequence anew; the schedule goes on."""
        with scope("reset"):
            self.model.reset()
            for buffer in (self.length, self.drafts, self._draft_hidden):
                buffer.zero_()
            self.token.fill_(self.config.first_token)

    def rewind_schedule(self) -> None:
        """Begin simulated acceptance anew."""
        self._steps.zero_()
