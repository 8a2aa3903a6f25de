"""What a short recording says of a step: idle, blocking reads, launches, and what passes save."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bubblescope.ablate.plan import Rung
from bubblescope.ablate.samples import Predicted, Window
from bubblescope.diagnose import Diagnosis, diagnose
from bubblescope.diagnose.model import Part
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Timeline

_UNKNOWN_SHARE = 20
"""Where more than a twentieth of the window is unknown, there is no figure for idle."""


def account(rung: int, timeline: Timeline, window: tuple[int, int]) -> Window:
    """What steps [first, last) of a rung's recording say: medians, of counts the mean a step."""
    found = diagnose(timeline, window=window)
    steps = found.steps
    waits = steps.parts_ns.sum(axis=1) - steps.parts_ns[:, Part.UNKNOWN]
    known = _UNKNOWN_SHARE * found.total("unknown_ns") <= found.total("window_ns")
    per_step = [r.calls_per_step for r in found.reads]
    return Window(
        rung=rung,
        step_ns=steps.median(steps.length_ns),
        idle_ns=steps.median(waits) if known else None,
        reads=sum(n for n in per_step if n is not None) if len(steps.start) else None,
        launches=_launches(timeline, found),
        capture=f"{timeline.meta.capture}, {found.level} level",
    )


def _launches(timeline: Timeline, diagnosis: Diagnosis) -> float | None:
    """Host calls a step that put something in a queue: one for all nodes of a graph replay."""
    count = len(diagnosis.steps.start)
    if not count:
        return None
    ops, calls = timeline.device_ops, 0
    for device in diagnosis.devices:
        inside = (ops.rank == device.rank) & (ops.device == device.device)
        inside &= (ops.start >= device.start) & (ops.start < device.end)
        keys = np.stack([ops.process[inside], ops.correlation[inside]])
        calls += np.unique(keys, axis=1).shape[1]
    return calls / count


def predict_savings(
    of: int, timeline: Timeline, window: tuple[int, int], rungs: Sequence[Rung]
) -> list[Predicted]:
    """What other rungs save a step, predicted from the recording of one alone.

    From the baseline's every rung is predicted; from another's those that are compared with it and
    have more passes.

    Args:
        of: the rung that was recorded.
        timeline: its recording.
        window: its steps, [first, last).
        rungs: all of the plan.
    """
    here = set(rungs[of].passes)
    return [
        _predict(of, timeline, window, index, [p for p in rung.passes if p not in here])
        for index, rung in enumerate(rungs)
        if here < set(rung.passes) and of in (0, rung.against)
    ]


def _predict(
    of: int, timeline: Timeline, window: tuple[int, int], rung: int, passes: Sequence[str]
) -> Predicted:
    from bubblescope.predict import parse, predict
    from optimizations.registry import get

    entries = [get(name) for name in passes]
    silent = [entry.name for entry in entries if not entry.models]
    if silent:
        return Predicted(rung, None, f"{', '.join(silent)}: declares no model", of)
    models = [parse(text) for entry in entries for text in entry.models]
    try:
        made = predict(timeline, models, window=window)
    except BubblescopeError as error:
        return Predicted(rung, None, str(error), of)
    if made.predicted_ns is None:
        return Predicted(rung, None, made.withheld, of)
    return Predicted(rung, made.saving_ns, "", of)
