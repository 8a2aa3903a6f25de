"""Runs all gates of a set of passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bubblescope.ablate.gates import flips, state, stress, tokens
from bubblescope.ablate.gates.model import GateResult, Verdict
from bubblescope.ablate.gates.runs import Case, PassBroke, Progress, Runs
from bubblescope.targets.gated import NotOffered, Stress
from optimizations import registry

TOKENS = 256
SMS = 8
"""The fewest that a Hopper sets apart: any grid of more than a few blocks takes many waves."""
DELAY_NS = 50_000_000
"""Longer than a step of any target here, so that whoever runs a step ahead is overtaken."""


class Gates:
    """The gates of one target. Runs without passes are made once, for all sets of passes.

    Args:
        factory: makes the target, not started. Only one is started at a time.
        tokens: greedy tokens that are compared.
        seed: of the errors in drafts, and of what is delayed.
        sms: multiprocessors left to the target for the gate "restricted SMs".
        delay_ns: of a stage, for the gate "delayed producer".
        progress: called before each run with what it is and the share done.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        *,
        tokens: int = TOKENS,
        seed: int = 0,
        sms: int = SMS,
        delay_ns: int = DELAY_NS,
        progress: Progress = lambda _stage, _share: None,
    ) -> None:
        self._runs = Runs(factory, tokens, seed, progress)
        self._restricted, self._delayed = Stress(sms=sms), Stress(delay_ns=delay_ns, seed=seed)

    def check(self, passes: Sequence[str]) -> tuple[GateResult, ...]:
        """Every gate, in the order in which reports name them.

        Raises:
            BubblescopeError: no such pass, not one of this target, or the target does not run
                without passes either.
        """
        names = tuple(dict.fromkeys(passes))
        try:
            on = self._runs.target.name
        except NotOffered:  # each gate will say so
            on = ""
        keeps_bits = all(registry.get(name).keeps_bits_on(on) for name in names)
        case = Case(self._runs, names, keeps_bits)
        first = tokens if keeps_bits else flips
        judges = {
            first.NAME: first.judge,
            state.NAME: state.judge,
            stress.RESTRICTED: partial(stress.judge, stress.RESTRICTED, self._restricted),
            stress.DELAYED: partial(stress.judge, stress.DELAYED, self._delayed),
        }
        return tuple(_result(name, judge, case) for name, judge in judges.items())


def check(
    factory: Callable[[], Any], passes: Sequence[str], **options: Any
) -> tuple[GateResult, ...]:
    """All gates of one set of passes on one target; `options` are those of `Gates`."""
    return Gates(factory, **options).check(passes)


def _result(name: str, judge: Callable[[Case], GateResult], case: Case) -> GateResult:
    try:
        return judge(case)
    except NotOffered as reason:
        return GateResult(name, Verdict.NOT_TESTED, str(reason))
    except PassBroke as broke:
        return GateResult(name, Verdict.FAILED, str(broke))
