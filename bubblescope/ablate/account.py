"""What a short recording says of a step: idle, blocking reads, launches, and what passes save."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bubblescope.ablate.samples import Predicted, Window
from bubblescope.diagnose import Diagnosis, diagnose
from bubblescope.diagnose.model import Part
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Timeline

_UNKNOWN_SHARE = 20
"""Where more than a twentieth of the window is unknown, there is no figure for idle."""


def account(rung: int, timeline: Timeline, window: tuple[int, int]) -> Window:
    """What the steps [first, last) of a rung's recording say, medians a step."""
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
    timeline: Timeline, window: tuple[int, int], rungs: Sequence[tuple[int, Sequence[str]]]
) -> list[Predicted]:
    """What the passes of each rung save a step, predicted from the baseline's recording alone.

    Args:
        timeline: the baseline's recording.
        window: its steps, [first, last).
        rungs: index and passes of each.
    """
    return [_predict(timeline, window, rung, passes) for rung, passes in rungs]


def _predict(
    timeline: Timeline, window: tuple[int, int], rung: int, passes: Sequence[str]
) -> Predicted:
    from bubblescope.predict import parse, predict
    from optimizations.registry import get

    entries = [get(name) for name in passes]
    silent = [entry.name for entry in entries if not entry.models]
    if silent:
        return Predicted(rung, None, f"{', '.join(silent)}: declares no model")
    models = [parse(text) for entry in entries for text in entry.models]
    try:
        made = predict(timeline, models, window=window)
    except BubblescopeError as error:
        return Predicted(rung, None, str(error))
    if made.predicted_ns is None:
        return Predicted(rung, None, made.withheld)
    return Predicted(rung, made.saving_ns)
