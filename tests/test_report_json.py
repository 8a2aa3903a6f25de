from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bubblescope.diagnose.model import Clocks, Diagnosis, Part
from bubblescope.report import as_json
from bubblescope.report.as_json import ReportJson, to_json
from bubblescope.timeline.meta import Meta
from tests.test_report_examples import (
    FINDINGS,
    READ,
    decode,
    device_of,
    diagnosis_of,
    hostile,
    steps_of,
)

PARTS = [
    "read tail",
    "host gap",
    "host wait",
    "launch call",
    "launch latency",
    "stream wait",
    "device gap",
    "graph gap",
    "unresolved",
    "unknown",
]


def loaded(diagnosis: Diagnosis, passes: dict[int, list[str]] | None = None) -> Any:
    return json.loads(to_json(diagnosis, passes or {}), parse_constant=pytest.fail)


def test_the_top_is_that_of_the_one_device() -> None:
    report = loaded(decode())
    (device,) = report["devices"]
    shared = set(device) - {"rank", "device", "name"}
    assert {"window_ns", "parts_ns", "steps", "reads", "operations"} < shared
    assert {key: report[key] for key in shared} == {key: device[key] for key in shared}
    assert report["window_ns"] == 94_845_760
    assert report["busy_ns"] == 23_380_000
    assert report["idle_ns"] == 71_465_760
    assert report["unknown_ns"] == 0
    assert report["overlapped_ns"] == 6_116_000
    assert list(report["parts_ns"]) == PARTS
    assert report["parts_ns"]["read tail"] == 60_000_000
    assert sum(report["parts_ns"].values()) == report["idle_ns"] + report["unknown_ns"]


def test_steps() -> None:
    steps = loaded(decode())["steps"]
    assert steps["count"] == 4
    assert steps["marker"] == "scheduler.run_batch"
    assert (steps["median_ns"], steps["min_ns"], steps["max_ns"]) == (
        8_673_940,
        8_473_940,
        8_773_940,
    )
    assert steps["busy_ns"] == 5_820_000
    assert steps["overlapped_ns"] == 1_533_000
    assert steps["parts_ns"]["host gap"] == 1_257_000
    assert list(steps["parts_ns"]) == PARTS
    assert steps["each"][0] == {
        "number": 0,
        "duration_ns": 150_000,
        "whole": False,
        "outlier": False,
        "counted": False,
        "phase": "",
    }
    assert [step["outlier"] for step in steps["each"]] == [False] * 4 + [True, False]
    assert [step["counted"] for step in steps["each"]] == [False] + [True] * 3 + [False] * 2


def test_no_steps_are_null() -> None:
    steps = loaded(diagnosis_of(device_of(steps_of([]))))["steps"]
    assert steps["count"] == 0
    assert steps["each"] == []
    assert [steps[key] for key in ("median_ns", "min_ns", "max_ns", "busy_ns")] == [None] * 4
    assert set(steps["parts_ns"].values()) == {None}


def test_reads_findings_and_the_rest() -> None:
    report = loaded(decode(), {0: ["seq-len-sync"]})
    assert report["reads"][0] == {
        "name": "cudaStreamSynchronize",
        "site": {
            "file": "/opt/sglang/srt/managers/overlap_utils.py",
            "line": 639,
            "function": "resolve",
        },
        "within": ["scheduler.run_batch", "aten::item", "aten::_local_scalar_dense"],
        "under": "aten::item",
        "calls": 4,
        "waited": 4,
        "calls_per_step": 1.0,
        "blocked_ns": 3_400_000,
        "blocked_ns_per_step": 850_400,
        "exposed_idle_ns": 3_316_000,
        "exposed_idle_ns_per_step": 829_000,
        "idle_after_ns": 9_792_000,
        "idle_after_ns_per_step": 2_448_000,
    }
    assert report["reads"][1]["site"] is None
    first, second, third = report["findings"]
    assert first["passes"] == ["seq-len-sync"]
    assert first["share"] == 0.0954
    assert second["passes"] == []
    assert [f["ranked"] for f in (first, second, third)] == [True, True, False]
    assert third["call"] == "cudaGraphLaunch"
    assert report["host_gap"][0] == {
        "doing": "framework op",
        "name": "aten::copy_",
        "under": "",
        "count": 84,
        "ns": 3_000_000,
        "ns_per_step": 750_000,
    }
    assert report["health"] == [
        {"kind": "cut", "count": 2, "note": "device operations had no length"}
    ]
    assert report["warnings"] == ["Kernels of 1 launch were not recorded."]
    assert report["clocks"] == {"low_ns": -2_000, "high_ns": 6_000, "shift_ns": 0}
    assert (report["source"], report["format"], report["capture"], report["level"]) == (
        "decode.json.gz",
        "kineto",
        "torch.profiler",
        "node",
    )
    assert report["version"] == as_json.VERSION == 1


def test_several_devices_are_summed() -> None:
    steps = steps_of([(60, 5, {Part.HOST_GAP: 40})])
    report = loaded(diagnosis_of(device_of(steps), device_of(steps, rank=1, device=1)))
    assert report["window_ns"] == 200
    assert report["busy_ns"] == 120
    assert report["idle_ns"] == 80
    assert report["overlapped_ns"] == 10
    assert report["parts_ns"]["host gap"] == 80
    assert [(d["rank"], d["device"], d["window_ns"]) for d in report["devices"]] == [
        (0, 0, 100),
        (1, 1, 100),
    ]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_json_cannot_say_is_null(bad: float) -> None:
    diagnosis = replace(
        decode(),
        findings=(replace(FINDINGS[0], share=bad),),
        reads=(replace(READ, calls_per_step=bad),),
        clocks=Clocks(None, None, 0),
    )
    report = loaded(diagnosis)
    assert report["findings"][0]["share"] is None
    assert report["reads"][0]["calls_per_step"] is None
    assert report["clocks"]["low_ns"] is None


def test_hostile_names_come_through() -> None:
    report = loaded(hostile(), {0: ["a\ud800"]})
    name = report["reads"][0]["name"]
    assert name.startswith("[bold]x[/] [/nope] \x1b[31m\x07 a\nb\tc\r \u202egnp")
    assert "\ud800" not in name
    assert report["findings"][0]["passes"] == ["a?"]


def test_it_reads_back_typed_and_is_one_line_of_bytes_at_the_end() -> None:
    data = to_json(replace(decode(), meta=Meta("x", "y", unprofiled_step_ns=5)), {})
    assert data.endswith(b"}\n")
    assert msgspec.json.decode(data, type=ReportJson).unprofiled_step_ns == 5


def test_every_key_is_documented() -> None:
    text = (Path(__file__).parents[1] / "docs" / "json.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z0-9_ ]+)`", text))
    definitions = msgspec.json.schema(ReportJson)["$defs"].values()
    keys = {key for definition in definitions for key in definition["properties"]}
    assert keys <= documented, keys - documented
    assert set(PARTS) <= documented
