"""Diagnoses made by hand for the tests of the reporters, and checks that they are consistent."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console

from bubblescope.diagnose.model import (
    Bubbles,
    Clocks,
    DeviceDiagnosis,
    Diagnosis,
    Filler,
    Finding,
    HealthNote,
    Part,
    Pieces,
    ReadSite,
    Segment,
    Site,
    StepTable,
)
from bubblescope.report.terminal import render
from bubblescope.timeline.meta import Meta

_NONE = np.zeros(0, np.int64)
_BYTES = np.zeros(0, np.int8)


def steps_of(
    rows: Sequence[tuple[int, int, dict[Part, int]]],
    cut: Sequence[int] = (),
    outliers: Sequence[int] = (),
    headless: Sequence[int] = (),
) -> StepTable:
    """Steps laid end to end from (busy, overlapped, parts); the others are indices."""
    parts = np.zeros((len(rows), len(Part)), np.int64)
    for row, (_, _, given) in enumerate(rows):
        for part, ns in given.items():
            parts[row, part] = ns
    busy = np.array([row[0] for row in rows], np.int64)
    edges = np.concatenate([[0], np.cumsum(busy + parts.sum(axis=1))]).astype(np.int64)
    number = np.arange(len(rows))
    return StepTable(
        number=number,
        start=edges[:-1],
        end=edges[1:],
        whole=~np.isin(number, cut),
        led=~np.isin(number, headless),
        outlier=np.isin(number, outliers),
        phase=np.zeros(len(rows), np.int8),
        busy_ns=busy,
        overlapped_ns=np.array([row[1] for row in rows], np.int64),
        parts_ns=parts,
    )


def device_of(steps: StepTable, **changed: Any) -> DeviceDiagnosis:
    """A device whose window is exactly these steps."""
    given: dict[str, Any] = {
        "rank": 0,
        "device": 0,
        "name": "NVIDIA H200",
        "start": 0,
        "end": int((steps.end - steps.start).sum()),
        "busy_ns": int(steps.busy_ns.sum()),
        "overlapped_ns": int(steps.overlapped_ns.sum()),
        "opaque_ns": 0,
        "operations": 1_000,
        "parts_ns": {part: int(steps.parts_ns[:, part].sum()) for part in Part},
        "steps": steps,
        "bubbles": Bubbles(_NONE, _NONE, _NONE, _NONE, _NONE),
        "pieces": Pieces(_NONE, _NONE, _NONE, _BYTES, _BYTES, _NONE, _NONE),
        "reads": (),
        "typical_step": (),
    }
    return DeviceDiagnosis(**(given | changed))


def diagnosis_of(*devices: DeviceDiagnosis, **changed: Any) -> Diagnosis:
    """A diagnosis of these devices; the steps are the first one's."""
    given: dict[str, Any] = {
        "meta": Meta(source="decode.json.gz", format="kineto", capture="torch.profiler"),
        "marker": "scheduler.run_batch",
        "devices": devices,
        "steps": devices[0].steps if devices else steps_of([]),
        "reads": devices[0].reads if devices else (),
        "fillers": (),
        "findings": (),
        "health": (),
        "warnings": (),
        "clocks": Clocks(-2_000, 6_000, 0),
        "level": "node",
    }
    return Diagnosis(**(given | changed))


def window_only(busy: int, parts: dict[Part, int], **changed: Any) -> Diagnosis:
    """One device, no steps: only a window of these totals."""
    full = {part: parts.get(part, 0) for part in Part}
    device = device_of(
        steps_of([]), end=busy + sum(full.values()), busy_ns=busy, parts_ns=full, overlapped_ns=0
    )
    return diagnosis_of(device, **({"marker": ""} | changed))


READ = ReadSite(
    name="cudaStreamSynchronize",
    site=Site("/opt/sglang/srt/managers/overlap_utils.py", 639, "resolve"),
    within=("scheduler.run_batch", "aten::item", "aten::_local_scalar_dense"),
    under="aten::item",
    calls=4,
    waited=4,
    calls_per_step=1.0,
    blocked_ns=3_400_000,
    blocked_ns_per_step=850_400,
    exposed_idle_ns=3_316_000,
    exposed_idle_ns_per_step=829_000,
    idle_after_ns=9_792_000,
    idle_after_ns_per_step=2_448_000,
)
COPY = ReadSite(
    name="cudaEventSynchronize",
    site=None,
    within=("copy_done",),
    under="copy_done",
    calls=4,
    waited=0,
    calls_per_step=1.0,
    blocked_ns=24_000,
    blocked_ns_per_step=6_040,
    exposed_idle_ns=0,
    exposed_idle_ns_per_step=0,
    idle_after_ns=0,
    idle_after_ns_per_step=0,
)
FINDINGS = (
    Finding(
        kind="blocking read",
        title="A read-back each step holds the host",
        why="The host waits for verify to finish before it can prepare the next draft.",
        exposed_idle_ns=3_316_000,
        exposed_idle_ns_per_step=829_000,
        share=0.09540001,
        ranked=True,
        call="cudaStreamSynchronize",
        site=READ.site,
        within=READ.within,
    ),
    Finding(
        kind="host gap",
        title="The host prepares work while the device is dry",
        why="",
        exposed_idle_ns=5_028_000,
        exposed_idle_ns_per_step=1_257_000,
        share=0.1446,
        ranked=True,
    ),
    Finding(
        kind="launch call",
        title="cudaGraphLaunch",
        why="",
        exposed_idle_ns=3_764_000,
        exposed_idle_ns_per_step=941_000,
        share=0.1083,
        ranked=False,
        call="cudaGraphLaunch",
    ),
)


def decode() -> Diagnosis:
    """A decode loop: a cut step, four whole ones of which one is an outlier, then a cut one."""
    parts = {
        Part.HOST_GAP: 1_257_000,
        Part.LAUNCH_CALL: 1_199_000,
        Part.GRAPH_GAP: 297_000,
        Part.LAUNCH_LATENCY: 49_500,
        Part.DEVICE_GAP: 51_400,
        Part.STREAM_WAIT: 40,
    }
    steps = steps_of(
        [
            (100_000, 0, {Part.HOST_GAP: 50_000}),
            (5_820_000, 1_533_000, parts),
            (5_620_000, 1_500_000, parts),
            (5_920_000, 1_550_000, parts),
            (5_820_000, 1_533_000, parts | {Part.READ_TAIL: 60_000_000}),
            (100_000, 0, {}),
        ],
        cut=(0, 5),
        outliers=(4,),
    )
    typical = (
        Segment("host gap", 0, 1_257_000),
        Segment("launch call", 1_257_000, 2_456_000),
        Segment("busy", 2_456_000, 8_573_940),
        Segment("graph gap", 8_573_940, 8_673_940),
    )
    return diagnosis_of(
        device_of(steps, reads=(READ, COPY), typical_step=typical, operations=12_345),
        findings=FINDINGS,
        fillers=(
            Filler("framework op", "aten::copy_", "", 84, 3_000_000, 750_000),
            Filler("nothing recorded", "", "", 12, 2_078_000, 507_000),
        ),
        health=(HealthNote("cut", 2, "device operations had no length"),),
        warnings=("Kernels of 1 launch were not recorded.",),
    )


HOSTILE = "[bold]x[/] [/nope] \x1b[31m\x07 a\nb\tc\r \u202egnp\u200f\u2066 \x00\x9b2J \ud800 名前 é"


def text(
    diagnosis: Diagnosis,
    passes: Mapping[int, Sequence[str]] | None = None,
    *,
    width: int = 100,
    top: int = 10,
    **console: Any,
) -> str:
    out = io.StringIO()
    render(diagnosis, passes or {}, Console(file=out, width=width, **console), top=top)
    return out.getvalue()


def section(report: str, title: str) -> list[str]:
    """The lines from that heading to the next blank one."""
    lines = report.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith(title))
    last = next((n for n in range(first, len(lines)) if not lines[n]), len(lines))
    return lines[first:last]


def hostile() -> Diagnosis:
    site = Site(HOSTILE, 3, HOSTILE)
    read = replace(READ, name=HOSTILE, site=site, within=(HOSTILE,))
    finding = replace(FINDINGS[0], title=HOSTILE, why=HOSTILE, call=HOSTILE, site=site)
    inner = replace(FINDINGS[2], call=HOSTILE)
    base = decode()
    return replace(
        base,
        meta=Meta(source=HOSTILE, format=HOSTILE, capture=HOSTILE),
        marker=HOSTILE,
        level=HOSTILE,
        devices=(replace(base.devices[0], name=HOSTILE), base.devices[0]),
        reads=(read, replace(read, site=None)),
        fillers=(Filler(HOSTILE, HOSTILE, HOSTILE, 1, 5, 5),),
        findings=(finding, inner),
        health=(HealthNote(HOSTILE, 1, HOSTILE),),
        warnings=(HOSTILE,),
    )


def test_the_examples_keep_the_invariant() -> None:
    for device in decode().devices:
        assert device.busy_ns + sum(device.parts_ns.values()) == device.window_ns
        steps = device.steps
        assert ((steps.end - steps.start) == steps.busy_ns + steps.parts_ns.sum(axis=1)).all()
