"""Runs of a target that gates compare: each is made once, when a gate first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from bubblescope.errors import BubblescopeError
from bubblescope.targets.gated import (
    Drafts,
    Gateable,
    Gated,
    NotOffered,
    PlainRun,
    ReplayRun,
    Stress,
)
from optimizations import registry

Progress = Callable[[str, float], None]
Run = TypeVar("Run", PlainRun, ReplayRun)
USUAL = 9
"""Runs that a set of passes takes: only for the share of progress."""


class PassBroke(Exception):
    """A run with passes on ended in an error; without them it does not."""


class Runs:
    """All runs of one target; those without passes serve every set of passes.

    Args:
        factory: makes the target, not started.
        tokens: to give out in each run.
        seed: of the errors in drafts, and of what is delayed.
        progress: called before each run with what it is and the share done.
    """

    def __init__(
        self, factory: Callable[[], Any], tokens: int, seed: int, progress: Progress
    ) -> None:
        self._factory, self.tokens, self._seed = factory, tokens, seed
        self._progress = progress
        self._target: Gated | None = None
        self._made: dict[object, Any] = {}

    @property
    def target(self) -> Gated:
        """The target set up to be checked.

        Raises:
            NotOffered: there is none.
        """
        if self._target is None:
            made = self._factory()
            if not isinstance(made, Gateable):
                raise NotOffered(f"target {made.name} cannot replay drafts nor show its state")
            self._target = made.gated()
        return self._target

    def reference(self) -> PlainRun:
        """Greedy, without speculation and passes: enough tokens for the drafts of every replay."""
        spare = 3 * (self.target.drafts + 1)
        return self._once(
            "reference",
            (),
            "without speculation",
            lambda: self.target.plain(self.tokens + spare),
        )

    def replay(
        self, passes: tuple[str, ...], forced: bool, stress: Stress | None = None
    ) -> ReplayRun:
        """With replayed drafts. forced: see `Drafts`."""
        known = tuple(self.reference().tokens.tolist())
        drafts = Drafts(known, self._right(), self._seed, forced)
        what = "drafts replayed" + (", under stress" if stress else "")
        return self._once(
            ("replay", forced, stress),
            passes,
            what,
            lambda: self.target.replay(drafts, self.tokens, stress),
        )

    def plain(
        self, passes: tuple[str, ...], along: Sequence[int], rows: int = 1, fp32: bool = False
    ) -> PlainRun:
        """Without speculation along tokens, as many positions as there are tokens."""
        return self._once(
            ("plain", tuple(along), rows, fp32),
            passes,
            "without speculation" + (", in fp32" if fp32 else ""),
            lambda: self.target.plain(len(along), along=along, rows=rows, fp32=fp32),
        )

    def _right(self) -> tuple[int, ...]:
        """How many drafts of each step are right: all counts equally often, in a random order."""
        draw, counts = np.random.default_rng(self._seed), self.target.drafts + 1
        blocks = -(-self.tokens // counts)
        return tuple(int(n) for _ in range(blocks) for n in draw.permutation(counts))

    def _once(
        self, what: object, passes: tuple[str, ...], stage: str, make: Callable[[], Run]
    ) -> Run:
        key = what, passes
        if key not in self._made:
            done = len(self._made)
            self._progress(
                " + ".join(passes) + ": " + stage if passes else stage, done / (done + USUAL)
            )
            self._made[key] = self._with(passes, make)
        made: Run | Exception = self._made[key]
        if isinstance(made, Exception):
            raise made
        return made

    def _with(self, passes: tuple[str, ...], make: Callable[[], Run]) -> Run | Exception:
        """A run, or why there is none; without its traceback, which would keep the target alive."""
        with registry.applied(passes, self.target):
            try:
                return make()
            except NotOffered as error:
                reason: Exception = NotOffered(str(error))
            except Exception as error:
                if not passes:
                    raise
                line = (str(error).splitlines() or [""])[0]
                kind = "" if isinstance(error, BubblescopeError) else f"{type(error).__name__}: "
                reason = PassBroke(f"the run with the passes on ended in an error: {kind}{line}")
        reason.__context__ = None
        return reason


@dataclass(frozen=True, slots=True)
class Case:
    """A set of passes, and its runs beside those without passes.

    keeps_bits: of all passes. Otherwise, and where the target `along_the_reference`, the replays
    are forced along the reference, so that one token that rounding flips does not make all drafts
    after it wrong.
    """

    runs: Runs
    passes: tuple[str, ...]
    keeps_bits: bool

    def off(self, stress: Stress | None = None) -> ReplayRun:
        """Passes off, drafts replayed."""
        return self.runs.replay((), self._forced, stress)

    def on(self, stress: Stress | None = None) -> ReplayRun:
        """Passes on, drafts replayed."""
        return self.runs.replay(self.passes, self._forced, stress)

    def committed(self, run: ReplayRun) -> tuple[int, ...]:
        """Tokens that a replay took into its state."""
        tokens = self.runs.reference().tokens if self._forced else run.tokens
        return tuple(tokens[: int(run.state["length"][0])].tolist())

    @property
    def _forced(self) -> bool:
        return not self.keeps_bits or getattr(self.runs.target, "along_the_reference", False)
