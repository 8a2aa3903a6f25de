"""A prediction as JSON. docs/json.md says what each key means."""

from __future__ import annotations

import msgspec

from bubblescope.diagnose.model import Diagnosis, Part
from bubblescope.predict.model import Prediction, Replay
from bubblescope.report.words import encodable

VERSION = 1


class PathJson(msgspec.Struct, frozen=True):
    """A share of the critical path."""

    kind: str
    name: str
    ns_per_step: int


class SlackJson(msgspec.Struct, frozen=True):
    """How far host and device are from deciding the step."""

    host_alone_ns: int
    device_alone_ns: int
    host_ns: int
    device_ns: int
    run_ahead_ns: int | None
    run_ahead_needed_ns: int | None


class SideJson(msgspec.Struct, frozen=True):
    """The steps before or after: where they go, what decides them."""

    busy_ns: int | None
    parts_ns: dict[str, int | None]
    critical_path: list[PathJson]
    slack: SlackJson | None


class StepJson(msgspec.Struct, frozen=True):
    """One counted step."""

    number: int
    measured_ns: int
    replayed_ns: int | None
    predicted_ns: int | None


class InferredJson(msgspec.Struct, frozen=True):
    """What was concluded or kept, and not recorded."""

    reads: int
    stream_waits: int
    fixed: int
    unlaunched: int


class PredictionJson(msgspec.Struct, frozen=True):
    """The whole: `msgspec.json.decode(text, type=PredictionJson)` reads it back typed."""

    version: int
    source: str
    what_ifs: list[str]
    assumed: list[str]
    withheld: str
    step_ns: int | None
    replayed_ns: int | None
    predicted_ns: int | None
    saving_ns: int | None
    steps: list[StepJson]
    before: SideJson
    after: SideJson | None
    inferred: InferredJson


def to_json(prediction: Prediction) -> bytes:
    """The prediction as UTF-8 JSON, indented, with a newline at its end."""
    unchanged, changed = prediction.unchanged, prediction.changed
    found = prediction.inferred
    report = PredictionJson(
        version=VERSION,
        source=encodable(prediction.before.meta.source),
        what_ifs=[encodable(text) for text in prediction.what_ifs],
        assumed=[encodable(text) for text in prediction.assumed],
        withheld=encodable(prediction.withheld),
        step_ns=prediction.step_ns,
        replayed_ns=prediction.replayed_ns,
        predicted_ns=prediction.predicted_ns,
        saving_ns=prediction.saving_ns,
        steps=[
            StepJson(number, measured, replayed, predicted)
            for number, measured, replayed, predicted in zip(
                prediction.number.tolist(),
                prediction.measured.tolist(),
                _lengths(unchanged, len(prediction.number)),
                _lengths(changed, len(prediction.number)),
                strict=True,
            )
        ],
        before=_side(prediction.before, unchanged),
        after=_side(prediction.after, changed) if changed is not None else None,
        inferred=InferredJson(found.reads, found.stream_waits, found.fixed, found.unlaunched),
    )
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def _lengths(replay: Replay | None, steps: int) -> list[int | None]:
    return [None] * steps if replay is None else list(replay.steps_ns.tolist())


def _side(diagnosis: Diagnosis | None, replay: Replay | None) -> SideJson:
    steps = None if diagnosis is None else diagnosis.steps
    slack = None
    if replay is not None:
        s = replay.slack
        slack = SlackJson(
            s.host_alone_ns,
            s.device_alone_ns,
            s.host_ns,
            s.device_ns,
            s.run_ahead_ns,
            s.run_ahead_needed_ns,
        )
    return SideJson(
        busy_ns=None if steps is None else steps.median(steps.busy_ns),
        parts_ns={
            part.label: None if steps is None else steps.median(steps.parts_ns[:, part])
            for part in Part
        },
        critical_path=[
            PathJson(row.kind, encodable(row.name), row.ns_per_step)
            for row in (() if replay is None else replay.path)
        ],
        slack=slack,
    )
