"""The model without speculation, scheduler or graphs: what the loop is checked against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bubblescope.targets.gated import PlainRun
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.mla import Positions
from bubblescope.targets.ling.snapshot import as_array, routed, state_of


def run(
    loop: Loop, count: int, along: Sequence[int] | None, rows: int, state_after: int | None
) -> PlainRun:
    """Run the model of a new `loop` one call after the other; see `Gated.plain`."""
    c, device = loop.config, loop.length.device
    table = torch.arange(c.context, device=device)
    tokens, logits, experts = [c.first_token, *(along or ())], [], []
    state = {}
    stops = {count, count if state_after is None else state_after}
    first = 0
    with torch.no_grad():
        while first < count:
            last = min([first + rows, count, *(s for s in stops if s > first)])
            at = torch.arange(first, last, device=device)
            given = torch.tensor(tokens[first:last], device=device)
            hidden = loop.model(given, Positions(at, table[at], table))
            logits.append(loop.model.logits(hidden))
            experts.append(_chosen(loop))
            loop.model.commit(at[-1:] - first)
            if along is None:
                tokens.append(int(logits[-1].argmax(-1)))
            first = last
            if first == (count if state_after is None else state_after):
                loop.length.fill_(first)
                loop.table.copy_(table)
                state = state_of(loop)
        said = torch.cat(logits)
        chosen = torch.cat(experts) if routed(loop) else None
        return PlainRun(
            as_array(said.argmax(-1)),
            as_array(said),
            None if chosen is None else as_array(chosen),
            state,
        )


def _chosen(loop: Loop) -> Tensor:
    """(tokens, layers, experts) of the call of the model made last."""
    chosen = [m.chosen for m in routed(loop) if m.chosen is not None]
    return torch.stack(chosen, 1).clone() if chosen else torch.zeros(0)
