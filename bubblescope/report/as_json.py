"""The report as JSON, for programs. docs/json.md says what each key means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from bubblescope.diagnose.exchange import Communication
from bubblescope.diagnose.issue import LaunchStatistics
from bubblescope.diagnose.model import (
    DeviceDiagnosis,
    Diagnosis,
    Filler,
    Finding,
    Part,
    Phase,
    ReadSite,
    Site,
    StepTable,
)
from bubblescope.report.words import encodable_all

VERSION = 1


class SiteJson(msgspec.Struct, frozen=True):
    """A line of source."""

    file: str
    line: int
    function: str


class ReadJson(msgspec.Struct, frozen=True):
    """All blocking reads of one place."""

    name: str
    site: SiteJson | None
    within: list[str]
    under: str
    calls: int
    waited: int
    calls_per_step: float | None
    blocked_ns: int
    blocked_ns_per_step: int | None
    exposed_idle_ns: int
    exposed_idle_ns_per_step: int | None
    idle_after_ns: int
    idle_after_ns_per_step: int | None


class StepJson(msgspec.Struct, frozen=True):
    """One step."""

    number: int
    duration_ns: int
    whole: bool
    outlier: bool
    counted: bool
    phase: str


class StepsJson(msgspec.Struct, frozen=True):
    """All steps, and medians over those that count."""

    count: int
    marker: str
    median_ns: int | None
    min_ns: int | None
    max_ns: int | None
    busy_ns: int | None
    overlapped_ns: int | None
    parts_ns: dict[str, int | None]
    phases: dict[str, int]
    each: list[StepJson]


class DeviceJson(msgspec.Struct, frozen=True):
    """One device's window."""

    rank: int
    device: int
    name: str
    window_ns: int
    busy_ns: int
    idle_ns: int
    unknown_ns: int
    overlapped_ns: int
    opaque_ns: int
    operations: int
    parts_ns: dict[str, int]
    steps: StepsJson
    reads: list[ReadJson]


class FillerJson(msgspec.Struct, frozen=True):
    """What filled host gaps."""

    doing: str
    name: str
    under: str
    count: int
    ns: int
    ns_per_step: int | None


class FindingJson(msgspec.Struct, frozen=True):
    """One thing to act on."""

    kind: str
    title: str
    why: str
    exposed_idle_ns: int
    exposed_idle_ns_per_step: int | None
    share: float | None
    predicted_saving_ns_per_step: int | None
    ranked: bool
    call: str
    site: SiteJson | None
    within: list[str]
    passes: list[str]


class HealthJson(msgspec.Struct, frozen=True):
    """Something dropped, repaired, missing or skewed."""

    kind: str
    count: int
    note: str


class ClocksJson(msgspec.Struct, frozen=True):
    """Bounds on the offset between host and device clocks."""

    low_ns: int | None
    high_ns: int | None
    shift_ns: int


class ReportJson(msgspec.Struct, frozen=True):
    """The whole report: `msgspec.json.decode(text, type=ReportJson)` reads it back typed."""

    version: int
    source: str
    format: str
    capture: str
    level: str
    world_size: int
    unprofiled_step_ns: int | None
    window_ns: int
    busy_ns: int
    idle_ns: int
    unknown_ns: int
    overlapped_ns: int
    opaque_ns: int
    operations: int
    parts_ns: dict[str, int]
    steps: StepsJson
    devices: list[DeviceJson]
    reads: list[ReadJson]
    host_gap: list[FillerJson]
    findings: list[FindingJson]
    health: list[HealthJson]
    warnings: list[str]
    clocks: ClocksJson
    communication: Communication | None
    launches: LaunchStatistics | None


def to_json(diagnosis: Diagnosis, passes: Mapping[int, Sequence[str]]) -> bytes:
    """The diagnosis as UTF-8 JSON, indented, with a newline at its end.

    Args:
        diagnosis: What to tell.
        passes: Names of the passes that address a finding, by its index in the diagnosis.
    """
    meta = diagnosis.meta
    report = ReportJson(
        version=VERSION,
        source=_text(meta.source),
        format=_text(meta.format),
        capture=_text(meta.capture),
        level=_text(diagnosis.level),
        world_size=meta.world_size,
        unprofiled_step_ns=meta.unprofiled_step_ns,
        window_ns=int(diagnosis.total("window_ns")),
        busy_ns=int(diagnosis.total("busy_ns")),
        idle_ns=int(diagnosis.total("idle_ns")),
        unknown_ns=int(diagnosis.total("unknown_ns")),
        overlapped_ns=int(diagnosis.total("overlapped_ns")),
        opaque_ns=int(diagnosis.total("opaque_ns")),
        operations=int(diagnosis.total("operations")),
        parts_ns=_parts(diagnosis.parts_ns()),
        steps=_steps(diagnosis.steps, diagnosis.marker),
        devices=[_device(d, diagnosis.marker) for d in diagnosis.devices],
        reads=[_read(r) for r in diagnosis.reads],
        host_gap=[_filler(f) for f in diagnosis.fillers],
        findings=[_finding(f, passes.get(i, ())) for i, f in enumerate(diagnosis.findings)],
        health=[HealthJson(_text(h.kind), int(h.count), _text(h.note)) for h in diagnosis.health],
        warnings=[_text(w) for w in diagnosis.warnings],
        clocks=ClocksJson(
            _whole(diagnosis.clocks.low),
            _whole(diagnosis.clocks.high),
            int(diagnosis.clocks.shift),
        ),
        communication=encodable_all(diagnosis.communication),
        launches=encodable_all(diagnosis.launches),
    )
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def _device(device: DeviceDiagnosis, marker: str) -> DeviceJson:
    return DeviceJson(
        rank=int(device.rank),
        device=int(device.device),
        name=_text(device.name),
        window_ns=int(device.window_ns),
        busy_ns=int(device.busy_ns),
        idle_ns=int(device.idle_ns),
        unknown_ns=int(device.unknown_ns),
        overlapped_ns=int(device.overlapped_ns),
        opaque_ns=int(device.opaque_ns),
        operations=int(device.operations),
        parts_ns=_parts(device.parts_ns),
        steps=_steps(device.steps, marker),
        reads=[_read(r) for r in device.reads],
    )


def _steps(steps: StepTable, marker: str) -> StepsJson:
    duration = steps.length_ns
    counted = duration[steps.counted()]
    return StepsJson(
        count=int(np.count_nonzero(steps.whole)),
        marker=_text(marker),
        median_ns=steps.median(duration),
        min_ns=int(counted.min()) if len(counted) else None,
        max_ns=int(counted.max()) if len(counted) else None,
        busy_ns=steps.median(steps.busy_ns),
        overlapped_ns=steps.median(steps.overlapped_ns),
        parts_ns={part.label: steps.median(steps.parts_ns[:, part]) for part in Part},
        phases=_phases(steps),
        each=[
            StepJson(*row)
            for row in zip(
                steps.number.tolist(),
                duration.tolist(),
                steps.whole.tolist(),
                steps.outlier.tolist(),
                steps.counted().tolist(),
                [Phase(p).label for p in steps.phase.tolist()],
                strict=True,
            )
        ],
    )


def _phases(steps: StepTable) -> dict[str, int]:
    """How many whole steps there are of each phase that was told."""
    counts = ((p, int(np.count_nonzero(steps.whole & (steps.phase == p)))) for p in Phase)
    return {p.label: number for p, number in counts if number and p.label}


def _read(read: ReadSite) -> ReadJson:
    return ReadJson(
        name=_text(read.name),
        site=_site(read.site),
        within=[_text(name) for name in read.within],
        under=_text(read.under),
        calls=int(read.calls),
        waited=int(read.waited),
        calls_per_step=_float(read.calls_per_step),
        blocked_ns=int(read.blocked_ns),
        blocked_ns_per_step=_whole(read.blocked_ns_per_step),
        exposed_idle_ns=int(read.exposed_idle_ns),
        exposed_idle_ns_per_step=_whole(read.exposed_idle_ns_per_step),
        idle_after_ns=int(read.idle_after_ns),
        idle_after_ns_per_step=_whole(read.idle_after_ns_per_step),
    )


def _filler(filler: Filler) -> FillerJson:
    return FillerJson(
        doing=_text(filler.doing),
        name=_text(filler.name),
        under=_text(filler.under),
        count=int(filler.count),
        ns=int(filler.ns),
        ns_per_step=_whole(filler.ns_per_step),
    )


def _finding(finding: Finding, passes: Sequence[str]) -> FindingJson:
    return FindingJson(
        kind=_text(finding.kind),
        title=_text(finding.title),
        why=_text(finding.why),
        exposed_idle_ns=int(finding.exposed_idle_ns),
        exposed_idle_ns_per_step=_whole(finding.exposed_idle_ns_per_step),
        share=_float(finding.share),
        predicted_saving_ns_per_step=_whole(finding.predicted_saving_ns_per_step),
        ranked=bool(finding.ranked),
        call=_text(finding.call),
        site=_site(finding.site),
        within=[_text(name) for name in finding.within],
        passes=[_text(name) for name in passes],
    )


def _site(site: Site | None) -> SiteJson | None:
    return (
        None if site is None else SiteJson(_text(site.file), int(site.line), _text(site.function))
    )


def _parts(parts: Mapping[Part, int]) -> dict[str, int]:
    """Every part by its label, also those of nothing, so that no key need be looked for."""
    return {part.label: int(parts.get(part, 0)) for part in Part}


def _whole(number: int | None) -> int | None:
    return None if number is None else int(number)


def _float(number: float | None) -> float | None:
    """Rounded to 4 places; what JSON has no word for (NaN, infinity) is null."""
    return None if number is None or not math.isfinite(number) else round(float(number), 4)


def _text(name: str) -> str:
    """As recorded, but for lone surrogates, which no UTF-8 can hold."""
    return name.encode("utf-8", "replace").decode("utf-8")
