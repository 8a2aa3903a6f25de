"""Intervals and noise against what can be counted by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubblescope.ablate.statistics import Interval, Resampled, noise


def one(*starts: list[float]) -> list[np.ndarray]:
    """Starts of a single rung."""
    return [np.array(s, float)[:, None] for s in starts]


def test_medians_over_all_rounds() -> None:
    made = Resampled(one([1, 2, 3], [10, 20]), draws=10)
    assert made.median(0) == 3


def test_a_constant_ratio_is_found_exactly_however_the_rounds_drift() -> None:
    drift = np.array([[100.0], [130.0], [90.0], [200.0]])
    starts = [drift * [1.0, 0.96], 2 * drift * [1.0, 0.96], 3 * drift * [1.0, 0.96]]
    made = Resampled(starts)
    assert made.change(1, 0) == pytest.approx(-0.04, abs=1e-12)
    found = made.change_interval(1, 0)
    assert (found.low, found.high) == (pytest.approx(-0.04), pytest.approx(-0.04))
    assert made.interval(0).low < made.median(0) < made.interval(0).high


def test_three_starts_of_one_round_each() -> None:
    # Of the 27 draws of three, 7 have 10 twice or thrice, 7 have 30: both are over 2.5 %.
    assert Resampled(one([10], [20], [30])).interval(0) == Interval(10, 30)


def test_starts_are_drawn_before_rounds() -> None:
    # All the spread is between starts: 40 rounds tell no more than four starts do.
    starts = one([10] * 10, [20] * 10, [30] * 10, [40] * 10)
    assert Resampled(starts).interval(0) == Interval(10, 40)
    # The same 40 rounds as one start would make the median far surer than it is.
    together = Resampled(one([10] * 10 + [20] * 10 + [30] * 10 + [40] * 10)).interval(0)
    assert 20 <= together.low <= together.high <= 30


def test_two_starts_of_two_rounds_by_counting_every_draw() -> None:
    starts = [[1.0, 2.0], [5.0, 11.0]]
    medians = [
        np.median([starts[a][i] for i in first] + [starts[b][j] for j in second])
        for a, b in product(range(2), repeat=2)
        for first in product(range(2), repeat=2)
        for second in product(range(2), repeat=2)
    ]
    assert len(medians) == 64  # all equally likely
    low, high = np.quantile(medians, [0.025, 0.975], method="inverted_cdf")
    assert Resampled(one(*starts)).interval(0) == Interval(low, high)


def test_rounds_stay_paired() -> None:
    """Rungs that move together from round to round differ by what they differ in each."""
    random = np.random.default_rng(1)
    drift = random.uniform(100, 200, (5, 6, 1))
    ratio = np.array([1.0, 0.9]) * random.uniform(0.999, 1.001, (5, 6, 2))
    found = Resampled(list(drift * ratio)).change_interval(1, 0)
    assert -0.102 < found.low < -0.1 < found.high < -0.098


def test_a_start_that_was_cut_off_weighs_as_much_as_a_whole_one() -> None:
    # Two of three starts say 10, so the median of a draw is 10 in 20 of 27 and 30 in 7 of 27.
    assert Resampled(one([30] * 9, [10], [10])).interval(0) == Interval(10, 30)


@given(st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=4), min_size=1, max_size=4))
def test_an_interval_lies_within_what_was_measured(starts: list[list[int]]) -> None:
    made = Resampled(one(*starts), draws=200)
    found, every = made.interval(0), [x for s in starts for x in s]
    assert min(every) <= found.low <= found.high <= max(every)


def test_the_same_seed_gives_the_same() -> None:
    starts = [np.random.default_rng(n).uniform(1, 2, (5, 2)) for n in range(3)]
    assert Resampled(starts).interval(0) == Resampled(starts).interval(0)


# Noise -----------------------------------------------------------------------------------------


def test_noise_of_two_rounds_is_what_lies_between_them() -> None:
    assert noise(one([100, 102]), 0, shared=True) == pytest.approx(0.02)
    assert noise(one([102, 100]), 0, shared=True) == pytest.approx(0.02)


def test_noise_of_three_rounds() -> None:
    # Neighbours differ by 1 % and 3 %; the mean of both, where both go the same way, is the most.
    found = noise(one([1.0, 1.01, 1.01 * 1.03]), 0, shared=True)
    assert found == pytest.approx(np.sqrt(1.01 * 1.03) - 1)


def test_noise_between_starts() -> None:
    starts = one([100, 100, 100], [105, 105, 105])
    assert noise(starts, 0, shared=True) == pytest.approx(0, abs=1e-12)
    assert noise(starts, 0, shared=False) == pytest.approx(0.05)


def test_no_pair_no_noise() -> None:
    assert noise(one([100], [105]), 0, shared=True) is None
    assert noise(one([100, 101]), 0, shared=False) is None


def test_noise_is_that_of_the_rung_asked_for() -> None:
    both = [np.array([[100.0, 100.0], [102.0, 100.0]])]
    assert noise(both, 1, shared=True) == 0


def is_change(x: list[np.ndarray]) -> bool:
    own = noise(x, 0, shared=True, draws=1000)
    made = Resampled(x, draws=1000)
    assert own is not None
    return abs(made.change(1, 0)) > own and not made.change_interval(1, 0).holds(0)


@pytest.mark.parametrize(("effect", "least", "most"), [(1.0, 0, 8), (0.9, 195, 200)])
def test_nothing_is_called_noise_and_ten_per_cent_is_not(
    effect: float, least: int, most: int
) -> None:
    """200 ablations of three starts and five rounds, single rounds 2 % apart."""
    random = np.random.default_rng(7)
    called = sum(
        is_change(list(random.lognormal(0, 0.02, (3, 5, 2)) * [1.0, effect])) for _ in range(200)
    )
    assert least <= called <= most
