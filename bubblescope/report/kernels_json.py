"""The table of kernels as JSON, for programs. docs/json.md says what each key means."""

from __future__ import annotations

import msgspec

from bubblescope.compare.families import family
from bubblescope.kernels.model import Kernel, Kernels
from bubblescope.kernels.names import short
from bubblescope.report.as_json import HealthJson

VERSION = 1


class NsightJson(msgspec.Struct, frozen=True):
    """What nsight-python measured of a kernel."""

    calls_per_step: float
    mean_ns: int
    min_ns: int
    max_ns: int


class DramJson(msgspec.Struct, frozen=True):
    """What ncu counted of a kernel."""

    launches: int
    bytes_per_second: float
    percent_of_peak: float | None
    median_ns: int


class KernelJson(msgspec.Struct, frozen=True):
    """One row."""

    name: str
    short: str
    family: str
    kind: str
    names: int
    where: str
    streams: list[int]
    calls: int
    in_graphs: int
    calls_per_step: float | None
    total_ns: int
    ns_per_step: int | None
    share: float | None
    share_of_busy: float | None
    mean_ns: int
    median_ns: int
    p90_ns: int
    min_ns: int
    max_ns: int
    nsight: NsightJson | None
    dram: DramJson | None


class NsightRunJson(msgspec.Struct, frozen=True):
    """How nsight-python measured."""

    version: str
    cupti: str
    steps: int
    unmatched: list[str]
    unseen_ns_per_step: int


class DramRunJson(msgspec.Struct, frozen=True):
    """How DRAM bytes were counted."""

    ncu: str
    collector: str
    launches: int
    unmatched: list[str]


class KernelsJson(msgspec.Struct, frozen=True):
    """The whole table: docs/json.md."""

    version: int
    source: str
    format: str
    capture: str
    level: str
    durations: str
    by: str
    marker: str
    steps: int
    step_ns: int | None
    devices: int
    window_ns: int
    busy_ns: int
    durations_ns: int
    overlapped_ns: int
    opaque_ns: int
    operations: int
    kernels: list[KernelJson]
    nsight: NsightRunJson | None
    dram: DramRunJson | None
    health: list[HealthJson]
    warnings: list[str]


def to_json(table: Kernels) -> bytes:
    """The table as UTF-8 JSON, indented, with a newline at its end."""
    diagnosis, nsight, dram = table.diagnosis, table.nsight, table.dram
    told = KernelsJson(
        version=VERSION,
        source=diagnosis.meta.source,
        format=diagnosis.meta.format,
        capture=diagnosis.meta.capture,
        level=diagnosis.level,
        durations=table.durations,
        by=table.by,
        marker=diagnosis.marker,
        steps=table.steps,
        step_ns=diagnosis.steps.median(diagnosis.steps.length_ns),
        devices=len(diagnosis.devices),
        window_ns=table.window_ns,
        busy_ns=table.busy_ns,
        durations_ns=table.durations_ns,
        overlapped_ns=table.overlapped_ns,
        opaque_ns=table.opaque_ns,
        operations=table.operations,
        kernels=[_kernel(row, table) for row in table.rows],
        nsight=None
        if nsight is None
        else NsightRunJson(
            nsight.version, nsight.cupti, nsight.steps, list(nsight.unmatched), nsight.unseen_ns
        ),
        dram=None
        if dram is None
        else DramRunJson(dram.version, dram.collector, dram.launches, list(dram.unmatched)),
        health=[HealthJson(h.kind, h.count, h.note) for h in diagnosis.health],
        warnings=list(diagnosis.warnings),
    )
    return msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"


def _kernel(row: Kernel, table: Kernels) -> KernelJson:
    nsight, dram = row.nsight, row.dram
    return KernelJson(
        name=row.name,
        short=short(row.name),
        family=family(row.name) if row.kind == "kernel" else row.name,
        kind=row.kind,
        names=row.names,
        where=row.where,
        streams=list(row.streams),
        calls=row.calls,
        in_graphs=row.in_graphs,
        calls_per_step=row.calls_per_step,
        total_ns=row.total_ns,
        ns_per_step=row.ns_per_step,
        share=_share(row.total_ns, table.window_ns),
        share_of_busy=_share(row.total_ns, table.busy_ns),
        mean_ns=row.mean_ns,
        median_ns=row.median_ns,
        p90_ns=row.p90_ns,
        min_ns=row.min_ns,
        max_ns=row.max_ns,
        nsight=None
        if nsight is None
        else NsightJson(nsight.calls_per_step, nsight.mean_ns, nsight.min_ns, nsight.max_ns),
        dram=None
        if dram is None
        else DramJson(dram.launches, dram.bytes_per_second, dram.percent_of_peak, dram.ns),
    )


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole > 0 else None
