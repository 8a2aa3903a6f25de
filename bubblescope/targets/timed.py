"""Times some steps of a target, with nothing recorded and nothing waited for in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bubblescope.errors import BubblescopeError
from bubblescope.timeline.tables import Int


@runtime_checkable
class Stepped(Protocol):
    """A target that runs single steps, and says what they gave.

    tokens: all that were given out since the start; a step's may be added a step later.
    """

    tokens: list[int]

    def step(self) -> None:
        """Run one decode step; the device may still be at work when this returns."""
        ...

    def finish(self) -> None:
        """Wait for all steps."""
        ...


@runtime_checkable
class Rewinds(Protocol):
    """A target whose steps can be repeated."""

    def rewind(self) -> None:
        """Wait for all steps; those that follow are the same as after the start."""
        ...


@runtime_checkable
class Generates(Protocol):
    """A target that runs whole generations only."""

    def run(self, steps: int) -> Any:
        """Run at least so many decode steps.

        Returns:
            `began`, when each step began in ns; `tokens`, how many `token_steps` steps gave.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """Steps one after the other.

    steps_ns: time of each, int64 (n,); their sum is the wall time of all n. tokens: how many were
    given in `token_steps` steps, which for a whole generation are more than n.
    """

    steps_ns: Int
    tokens: int
    token_steps: int


def time_steps(
    target: Any, warm_up: int, steps: int, at_end: Callable[[], object] = lambda: None
) -> Timed:
    """Run `warm_up` steps and then `steps` timed ones, of a started target.

    A target that can be rewound is, so that every call runs the same steps. A step's time is from
    the return of the one before to its own: the loop runs ahead as it does in use, and is not
    synchronised in between. `at_end` is called while the device may still be at work on the last.

    Raises:
        BubblescopeError: the target cannot be timed, or gave fewer steps.
    """
    if isinstance(target, Generates):
        timed = _generation(target, warm_up, steps)
        at_end()
        return timed
    if not isinstance(target, Stepped):
        name = getattr(target, "name", "?")
        raise BubblescopeError(f"target {name}: says not which tokens it gave; it cannot be timed")
    if isinstance(target, Rewinds):
        target.rewind()
    for _ in range(warm_up):
        target.step()
    before = len(target.tokens)
    step, clock = target.step, time.monotonic_ns
    returned = [clock()]
    for _ in range(steps):
        step()
        returned.append(clock())
    at_end()
    tokens = len(target.tokens) - before
    target.finish()
    moments = np.array(returned, np.int64)
    return Timed(moments[1:] - moments[:-1], tokens, steps)


def _generation(target: Generates, warm_up: int, steps: int) -> Timed:
    made = target.run(warm_up + steps + 1)
    began = np.array(made.began, np.int64)
    periods = (began[1:] - began[:-1])[warm_up : warm_up + steps]
    if len(periods) < steps:
        raise BubblescopeError(
            f"the generation ended after {len(began):,} steps; {warm_up + steps + 1:,} are needed: "
            "ask for fewer with --steps"
        )
    return Timed(periods, int(made.tokens), int(made.token_steps))
