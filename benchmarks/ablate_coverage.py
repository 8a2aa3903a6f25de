"""How often an ablation's interval holds the truth, and how often nothing is called something.

    python benchmarks/ablate_coverage.py

Ablations without any effect are made up: rounds of 1 % scatter, whose ratios scatter by the root of
two as much, and starts whose ratios scatter by so many times that. Prints the table of
docs/ablate.md.
"""

from __future__ import annotations

import numpy as np

from bubblescope.ablate.statistics import Resampled, noise

SCATTER = 0.01
EXPERIMENTS = 1000
DRAWS = 1000
SHAPES = ((3, 5), (3, 10), (5, 5), (8, 5))
BETWEEN_STARTS = (0.0, 0.5, 1.0)


def experiment(random: np.random.Generator, starts: int, rounds: int, between: float) -> list[bool]:
    """Whether the interval holds 0, and whether the row is called a change."""
    times = random.lognormal(0, SCATTER, (starts, rounds, 2))
    times[:, :, 1] *= random.lognormal(0, SCATTER * between * np.sqrt(2), (starts, 1))
    made = Resampled(list(times), draws=DRAWS)
    held = made.change_interval(1, 0).holds(0.0)
    own = noise(list(times), 0, shared=True, draws=DRAWS) or 0.0
    return [held, not held and abs(made.change(1, 0)) > own]


def main() -> None:
    random = np.random.default_rng(0)
    heads = [f"starts differ by {b:g}" for b in BETWEEN_STARTS]
    print(f"| starts x rounds | {' | '.join(heads)} |")
    print("|---|" + "---|" * len(heads))
    for starts, rounds in SHAPES:
        cells = []
        for between in BETWEEN_STARTS:
            found = [experiment(random, starts, rounds, between) for _ in range(EXPERIMENTS)]
            held, called = np.mean(found, axis=0)
            cells.append(f"holds {100 * held:.0f} %, called {100 * called:.1f} %")
        print(f"| {starts} x {rounds} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
