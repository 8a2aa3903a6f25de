"""Medians, intervals and the noise of paired rounds. docs/ablate.md says why so.

Times of rounds come as a list with one array a start, (rounds, rungs), in ns a step: row r holds
what every rung took in round r of that start, one after the other, which is what pairs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Starts = Sequence[npt.NDArray[np.generic]]

DRAWS = 10_000
LEVEL = 0.95
"""Of every interval."""
NOISE_LEVEL = 0.99
"""Share of the changes of the baseline against itself that noise is to cover."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds, in the unit of what they bound."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether the value is in it."""
        return self.low <= value <= self.high


class Resampled:
    """Draws of starts, and in each of rounds, with replacement: the same for everything asked.

    Steps are never drawn: those of a round share their start, their minute and their neighbours, so
    that they would make an interval far too narrow. A start that was cut off weighs as much as a
    whole one.
    """

    def __init__(self, starts: Starts, *, draws: int = DRAWS, seed: int = 0) -> None:
        """See the module for `starts`; there is one at least, and none is empty."""
        random = np.random.default_rng(seed)
        rounds = np.array([len(s) for s in starts])
        first = np.cumsum(rounds) - rounds
        drawn = random.integers(0, len(starts), (draws, len(starts), 1))
        place = random.random((draws, len(starts), int(rounds.max())))
        self._row = (first[drawn] + np.floor(place * rounds[drawn]).astype(np.int64)).reshape(
            draws, -1
        )
        self._values = np.concatenate([np.asarray(s, np.float64) for s in starts])

    def median(self, rung: int) -> float:
        """Median over all rounds of a rung."""
        return float(np.median(self._values[:, rung]))

    def interval(self, rung: int) -> Interval:
        """Interval of that median."""
        return self._middle(self._values[:, rung])

    def change(self, rung: int, against: int) -> float:
        """Median over rounds of the rung over its reference, less 1."""
        return float(np.median(self._ratios(rung, against))) - 1

    def change_interval(self, rung: int, against: int) -> Interval:
        """Interval of that change."""
        found = self._middle(self._ratios(rung, against))
        return Interval(found.low - 1, found.high - 1)

    def _ratios(self, rung: int, against: int) -> Floats:
        ratios: Floats = self._values[:, rung] / self._values[:, against]
        return ratios

    def _middle(self, values: Floats) -> Interval:
        medians = np.median(values[self._row], axis=1)
        low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Interval(float(low), float(high))


def noise(
    starts: Starts, rung: int, *, shared: bool, draws: int = DRAWS, seed: int = 0
) -> float | None:
    """How large a change of a rung against itself can look: an A/A test on its own rounds.

    Rounds next to each other are pairs, and in each pair it is drawn which one is A and which A'.
    The change from A to A' is the median of the pairs' ratios, as for a pass. This is drawn many
    times; the answer is what 99 % of these changes stay below, without their sign.

    Args:
        starts: see the module.
        rung: whose rounds; the baseline's.
        shared: pairs are neighbouring rounds of one start, as where a pass and its reference share
            one. Else the same round of neighbouring starts, with one draw for all of a pair of
            starts, since what differs between two starts differs for all their rounds.
        draws: how many times.
        seed: of the draws.

    Returns:
        A ratio less 1, as a change is; None where there is no pair.
    """
    logs = [np.log(np.asarray(s, np.float64)[:, rung]) for s in starts]
    if shared:
        differences = np.concatenate([np.diff(one) for one in logs])
        drawn = np.arange(len(differences))
    else:
        pairs = [b[: len(a)] - a[: len(b)] for a, b in pairwise(logs)]
        differences = np.concatenate([np.zeros(0), *pairs])
        drawn = np.repeat(np.arange(len(pairs)), [len(p) for p in pairs])
    if not len(differences):
        return None
    random = np.random.default_rng(seed)
    signs = random.choice([-1.0, 1.0], (draws, int(drawn.max()) + 1))[:, drawn]
    changes = np.abs(np.median(signs * differences, axis=1))
    return float(np.expm1(np.quantile(changes, NOISE_LEVEL)))
