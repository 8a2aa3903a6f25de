"""What an ablation measures, how often, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bubblescope.errors import BubblescopeError

Passes = tuple[str, ...]
T = TypeVar("T")
LADDERS = ("cumulative", "alone", "leave-one-out")
STARTS, ROUNDS, STEPS, WARM_UP = 3, 5, 200, 20
"""Defaults: starts a side, rounds a start, timed steps a round, steps before them."""
LEAST_STARTS = 3
"""Starts a side below which there is no interval."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One row of the table: the passes that are on, what it is called, and its reference.

    against: index of the rung that it is compared with, -1 for the baseline, which is the first.
    """

    label: str
    passes: Passes
    against: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rungs, and how often.

    A start runs every rung: those that share a process, `groups`, one after the other in each
    round. groups: indices of rungs; rungs of one group differ only by live passes.
    """

    ladder: str
    rungs: tuple[Rung, ...]
    groups: tuple[tuple[int, ...], ...]
    starts: int = STARTS
    rounds: int = ROUNDS
    steps: int = STEPS
    warm_up: int = WARM_UP

    def order(self, start: int) -> list[tuple[tuple[int, ...], list[list[int]]]]:
        """The groups of a start in turn, and for each round of each, its rungs in turn.

        Both alternate, A B B A, so that neither what comes first nor a drift favours a side.
        """
        return [
            (group, [alternate(group, start * self.rounds + r) for r in range(self.rounds)])
            for group in alternate(self.groups, start)
        ]


def alternate(items: Sequence[T], turn: int) -> list[T]:
    """The items in the order of that turn: A B, B A, B A, A B and so on.

    Every second turn is the one before it reversed, and each item goes first equally often.
    """
    first = (turn // 2) % len(items)
    turned = [*items[first:], *items[:first]]
    return turned[::-1] if turn % 2 else turned


def rungs(groups: Sequence[Passes], ladder: str) -> tuple[Rung, ...]:
    """The rungs of a ladder over passes, or over groups of passes that go together.

    cumulative: each is added to those before, and compared with the rung above it. alone: each
    against none. leave-one-out: all but one, compared with all.

    Raises:
        BubblescopeError: no such ladder, no pass, or one twice.
    """
    if ladder not in LADDERS:
        raise BubblescopeError(f"no ladder {ladder!r}; there are: {', '.join(LADDERS)}")
    if not groups:
        raise BubblescopeError("no pass to measure; name some with --passes")
    if len(set(groups)) < len(groups):
        raise BubblescopeError("a pass is named twice in --passes; each can be put on once")
    baseline = Rung("none", (), -1)
    if ladder == "alone":
        return baseline, *(Rung(" + ".join(g), g, 0) for g in groups)
    named = [name for group in groups for name in group]
    for name in named:
        if named.count(name) > 1:
            raise BubblescopeError(
                f"pass {name} is in several groups of --passes: only the ladder alone takes that"
            )
    if ladder == "cumulative":
        made = [baseline]
        for group in groups:
            made.append(Rung("+ " + " + ".join(group), (*made[-1].passes, *group), len(made) - 1))
        return tuple(made)
    every = Rung("all" if len(groups) > 1 else " + ".join(groups[0]), tuple(named), 0)
    if len(groups) == 1:
        return baseline, every
    without = (
        Rung(
            "all without " + " + ".join(left_out),
            tuple(name for group in groups if group != left_out for name in group),
            1,
        )
        for left_out in groups
    )
    return baseline, every, *without


def groups(chosen: Sequence[Rung], live: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Indices of the rungs that one process can hold: they differ only by passes that are live."""
    found: dict[Passes, list[int]] = {}
    for index, rung in enumerate(chosen):
        fixed = tuple(name for name in rung.passes if name not in live)
        found.setdefault(fixed, []).append(index)
    return tuple(tuple(g) for g in found.values())


def whole_rounds(
    plan: Plan, measured: Sequence[tuple[int, int, int, int]]
) -> Iterator[tuple[int, int, int]]:
    """The (part, start, round) in which every rung was measured: these count.

    measured: (part, start, round, rung) of each. A part is one run of the program; a round that was
    cut off is not made whole by another part, which would compare across what lies between.
    """
    seen: dict[tuple[int, int, int], set[int]] = {}
    for part, start, number, rung in measured:
        seen.setdefault((part, start, number), set()).add(rung)
    for key, found in seen.items():
        if len(found) == len(plan.rungs):
            yield key
