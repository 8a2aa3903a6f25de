"""Gates restricted SMs and delayed producer: the same bits again where races would show."""

from __future__ import annotations

from bubblescope.ablate.gates.compare import replay_difference
from bubblescope.ablate.gates.model import GateResult, Verdict
from bubblescope.ablate.gates.runs import Case
from bubblescope.targets.gated import Stress

RESTRICTED, DELAYED = "restricted SMs", "delayed producer"


def judge(name: str, stress: Stress, case: Case) -> GateResult:
    """A replay under stress, against the one without passes and stress.

    Passes that round are compared with themselves without stress.
    """
    how = (
        f"on {stress.sms} SMs"
        if stress.sms is not None
        else f"with stages delayed by {stress.delay_ns / 1e6:g} ms"
    )
    expected, other = (
        (case.off(), "with the passes off and no stress")
        if case.keeps_bits
        else (case.on(), "without stress")
    )
    got = case.on(stress)
    said = replay_difference(got, expected, other)
    if not said:
        detail = f"{len(got.tokens)} tokens, drafts accepted and state equal {how}"
        return GateResult(name, Verdict.PASSED, detail)
    if case.passes and replay_difference(case.off(stress), case.off(), ""):
        detail = f"the loop itself differs {how}, with the passes off: {said}"
        return GateResult(name, Verdict.NOT_TESTED, detail)
    return GateResult(name, Verdict.FAILED, f"{how}: {said}")
