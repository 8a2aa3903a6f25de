"""What a target offers so that passes on it can be checked for correctness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bubblescope.errors import BubblescopeError
from bubblescope.targets.target import Target

Tokens = NDArray[np.int64]
State = Mapping[str, NDArray[np.generic]]
"""Everything that a sequence leaves behind, by name. Caches: by position, the committed ones."""


class NotOffered(BubblescopeError):
    """A target, or the hardware under it, cannot do what a gate asks; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class PlainRun:
    """Greedy decoding without speculation: one token after the other, or along given ones.

    tokens: most likely after each position, (n,). logits: fp32, (n, vocabulary). experts: that were
    chosen, (n, layers, experts), None where there are none. state: after the position asked for;
    it has nothing of the draft head.
    """

    tokens: Tokens
    logits: NDArray[np.float32]
    experts: Tokens | None
    state: State


@dataclass(frozen=True, slots=True)
class Drafts:
    """What takes the place of the draft head's guesses: a known sequence with errors.

    tokens: the sequence, from the first token that is given out. right: drafts of each step before
    the first wrong one; after the last it begins anew. seed: of the wrong tokens. forced: each step
    goes on from the sequence, whatever the model said; else from what it said.
    """

    tokens: tuple[int, ...]
    right: tuple[int, ...]
    seed: int = 0
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Stress:
    """What makes races show.

    sms: multiprocessors that are left to the target, None for all. delay_ns: work of that length
    comes before stages, drawn by `seed`, about one in eight.
    """

    sms: int | None = None
    delay_ns: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ReplayRun:
    """Decoding with replayed drafts, which the model itself accepted or not.

    tokens: given out, (n,). accepted: drafts, of each step, (steps,). experts: as in `PlainRun`, by
    position. state: at the end.
    """

    tokens: Tokens
    accepted: Tokens
    experts: Tokens | None
    state: State


class Gated(Target, Protocol):
    """A target set up to be checked: never simulated acceptance. Its runs start and stop it.

    Passes that are on around a call are on in the whole run.
    """

    @property
    def drafts(self) -> int:
        """Tokens drafted a step."""
        ...

    @property
    def roundoff(self) -> float:
        """The largest relative error of one rounding in the precision it computes in."""
        ...

    def plain(
        self,
        count: int,
        *,
        along: Sequence[int] | None = None,
        rows: int = 1,
        state_after: int | None = None,
        fp32: bool = False,
    ) -> PlainRun:
        """Run without speculation.

        Args:
            count: positions.
            along: tokens to go along with instead of the most likely ones, at least count - 1.
            rows: positions in one call of the model, which needs `along`.
            state_after: positions after which the state is taken; where None, after all.
            fp32: the same weights, widened, and all arithmetic in fp32.

        Raises:
            NotOffered: it cannot.
        """
        ...

    def replay(self, drafts: Drafts, tokens: int, stress: Stress | None = None) -> ReplayRun:
        """Run with replayed drafts until at least so many tokens were given out.

        It ends after as many steps as there are tokens, whatever they gave.

        Raises:
            NotOffered: it cannot do so under this stress.
        """
        ...


@runtime_checkable
class Gateable(Protocol):
    """A target of which there is one set up to be checked."""

    def gated(self) -> Gated:
        """The same model, weights and device, not started."""
        ...


@runtime_checkable
class CheckedRunning(Gateable, Protocol):
    """A target whose one set up to be checked can be timed and recorded too, without a new start.

    To start it takes long, and what is checked is the very engine that is timed.
    """

    checked_running: bool
