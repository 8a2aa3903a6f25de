"""A comparison as JSON. docs/json.md says what each key means."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bubblescope.compare.model import (
    Change,
    Comparison,
    Figure,
    Side,
)
from bubblescope.diagnose.model import Finding, ReadSite, Site
from bubblescope.report.as_json import SiteJson
from bubblescope.report.comparison import summary
from bubblescope.report.words import encodable

VERSION = 1


class SideJson(msgspec.Struct, frozen=True):
    """One recording."""

    source: str
    run: str
    capture: str
    level: str
    devices: list[str]
    marker: str
    steps: int
    window_ns: int
    busy_ns: int
    idle_ns: int
    unknown_ns: int
    unprofiled_step_ns: int | None


class TimeJson(msgspec.Struct, frozen=True):
    """A time a step on both sides."""

    a_ns: int | None
    b_ns: int | None
    difference_ns: int | None
    spread_ns: int | None
    beyond_spread: bool | None


class CountJson(msgspec.Struct, frozen=True):
    """A count a step on both sides."""

    a: int | None
    b: int | None
    difference: int | None
    spread: int | None
    beyond_spread: bool | None


class ChangeJson(msgspec.Struct, frozen=True):
    """Everything of one name on both sides."""

    group: str
    name: str
    state: str
    count_a: int
    count_b: int
    difference: int
    per_step: CountJson
    a_ns: int | None
    b_ns: int | None
    per_step_ns: TimeJson | None


class ReadSideJson(msgspec.Struct, frozen=True):
    """A read site on one side."""

    site: SiteJson | None
    calls: int
    waited: int
    calls_per_step: float | None
    blocked_ns: int
    blocked_ns_per_step: int | None
    exposed_idle_ns: int
    exposed_idle_ns_per_step: int | None


class ReadChangeJson(msgspec.Struct, frozen=True):
    """A read site on both sides."""

    name: str
    under: str
    a: ReadSideJson | None
    b: ReadSideJson | None


class FindingSideJson(msgspec.Struct, frozen=True):
    """A finding on one side."""

    title: str
    exposed_idle_ns: int
    exposed_idle_ns_per_step: int | None
    site: SiteJson | None


class FindingChangeJson(msgspec.Struct, frozen=True):
    """A finding on both sides."""

    kind: str
    call: str
    ranked: bool
    a: FindingSideJson | None
    b: FindingSideJson | None


class DeviceWorkJson(msgspec.Struct, frozen=True):
    """Whether the device did the same work."""

    verdict: str
    differing: list[str]
    differing_ns: int
    why: str


class ComparisonJson(msgspec.Struct, frozen=True):
    """The whole comparison."""

    version: int
    summary: list[str]
    a: SideJson
    b: SideJson
    step: TimeJson
    busy: TimeJson
    idle: TimeJson
    overlapped: TimeJson
    parts: dict[str, TimeJson]
    device_work: DeviceWorkJson
    reads: list[ReadChangeJson]
    kinds: list[ChangeJson]
    families: list[ChangeJson]
    calls: list[ChangeJson]
    framework_ops: list[ChangeJson]
    findings: list[FindingChangeJson]
    notes: list[str]


def to_json(comparison: Comparison) -> bytes:
    """The comparison as UTF-8 JSON, indented, with a newline at its end."""
    work = comparison.device_work
    told = ComparisonJson(
        version=VERSION,
        summary=summary(comparison),
        a=_side(comparison.a),
        b=_side(comparison.b),
        step=_time(comparison.step),
        busy=_time(comparison.busy),
        idle=_time(comparison.idle),
        overlapped=_time(comparison.overlapped),
        parts={part.label: _time(figure) for part, figure in comparison.parts.items()},
        device_work=DeviceWorkJson(
            work.verdict.value,
            [encodable(c.name) for c in work.differing],
            work.differing_ns,
            encodable(work.why),
        ),
        reads=[
            ReadChangeJson(
                encodable(read.name), encodable(read.under), _read(change.a), _read(change.b)
            )
            for change in comparison.reads
            for read in [change.a or change.b]
            if read is not None
        ],
        kinds=_changes(comparison.kinds),
        families=_changes(comparison.families),
        calls=_changes(comparison.calls),
        framework_ops=_changes(comparison.ops),
        findings=[
            FindingChangeJson(
                found.kind,
                encodable(found.call),
                found.ranked,
                _finding(change.a),
                _finding(change.b),
            )
            for change in comparison.findings
            for found in [change.a or change.b]
            if found is not None
        ],
        notes=[encodable(note) for note in comparison.notes],
    )
    return msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"


def _side(side: Side) -> SideJson:
    return SideJson(
        encodable(side.source),
        encodable(side.run),
        encodable(side.capture),
        encodable(side.level),
        [encodable(name) for name in side.devices],
        encodable(side.marker),
        side.steps,
        side.window_ns,
        side.busy_ns,
        side.idle_ns,
        side.unknown_ns,
        side.unprofiled_step_ns,
    )


def _time(figure: Figure) -> TimeJson:
    return TimeJson(figure.a, figure.b, figure.difference, figure.spread, figure.beyond)


def _changes(changes: Sequence[Change]) -> list[ChangeJson]:
    return [
        ChangeJson(
            encodable(c.group),
            encodable(c.name),
            c.state.value,
            c.count_a,
            c.count_b,
            c.in_all,
            CountJson(c.count.a, c.count.b, c.count.difference, c.count.spread, c.count.beyond),
            c.ns_a,
            c.ns_b,
            None if c.ns is None else _time(c.ns),
        )
        for c in changes
    ]


def _read(read: ReadSite | None) -> ReadSideJson | None:
    if read is None:
        return None
    rate = read.calls_per_step
    return ReadSideJson(
        _site(read.site),
        read.calls,
        read.waited,
        None if rate is None else round(float(rate), 4),
        read.blocked_ns,
        read.blocked_ns_per_step,
        read.exposed_idle_ns,
        read.exposed_idle_ns_per_step,
    )


def _finding(finding: Finding | None) -> FindingSideJson | None:
    if finding is None:
        return None
    return FindingSideJson(
        encodable(finding.title),
        finding.exposed_idle_ns,
        finding.exposed_idle_ns_per_step,
        _site(finding.site),
    )


def _site(site: Site | None) -> SiteJson | None:
    if site is None:
        return None
    return SiteJson(encodable(site.file), site.line, encodable(site.function))
