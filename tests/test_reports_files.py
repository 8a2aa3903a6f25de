"""Reports of files that do not parse, or lack what readers assume: section D of REPORTS.md."""

from __future__ import annotations

from typing import Any

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Diagnosis, Part
from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from bubblescope.timeline import Timeline
from tests.corpus import need
from tests.e2e.program import run

US = 1000


def seen(entry: str, **options: Any) -> tuple[Timeline, Diagnosis]:
    timeline = load(need(f"reports/{entry}.json"), **options)
    return timeline, diagnose(timeline)


def lengths(diagnosis: Diagnosis) -> list[int]:
    (device,) = diagnosis.devices
    return [n // US for n in (device.bubbles.end - device.bubbles.start).tolist()]


def health(timeline: Timeline) -> dict[str, int]:
    return dict(zip(timeline.health.kind.to_list(), timeline.health.count.tolist(), strict=True))


@pytest.mark.parametrize("entry", ["24", "26"])
def test_a_name_that_breaks_the_json_costs_nothing(entry: str) -> None:
    timeline, diagnosis = seen(entry)
    assert len(timeline.device_ops) == 2
    assert lengths(diagnosis) == [950]
    assert (len(timeline.host_calls), len(timeline.ranges)) == (2, 1)
    assert health(timeline) == {"mended event": 1}
    text = need(f"reports/{entry}.json").read_bytes()
    first = text.index(b'{\n   "ph"', text.index(b'"correlation": 101', text.index(b'"k"')))
    assert f"byte {first:,}" in timeline.health.note[0]
    with pytest.raises(BubblescopeError, match=r"not valid JSON: invalid .*\(byte [0-9]+\)"):
        seen(entry, strict=True)


def test_windows_paths() -> None:
    """24: the name itself is read, every backslash in it."""
    timeline, _ = seen("24")
    assert timeline.ranges.name.to_list() == [r"pkg\cuda\__init__.py(10): _lazy"]
    assert timeline.frames.file.to_list() == [r"pkg\cuda\__init__.py"]


def test_control_characters() -> None:
    """26: the name keeps the character that no JSON may hold as it is."""
    timeline, _ = seen("26")
    assert any(c < " " for c in timeline.ranges.name[0])


def test_a_file_whose_writer_was_killed() -> None:
    timeline, diagnosis = seen("28")
    (device,) = diagnosis.devices
    assert (device.operations, len(timeline.host_calls)) == (6, 7)
    assert lengths(diagnosis) == [400] * 5
    assert device.parts_ns[Part.UNKNOWN] == 0
    assert health(timeline) == {"cut short": 102}
    (note,) = timeline.health.note.to_list()
    assert "at byte 2,802" in note
    assert "96.36 %" in note  # 2,700 of 2,802
    with pytest.raises(BubblescopeError, match="with fewer steps"):
        seen("28", strict=True)


def test_neither_rank_nor_step_is_needed() -> None:
    timeline, diagnosis = seen("19")
    assert len(timeline.device_ops) == 2
    assert lengths(diagnosis) == [950]
    assert not len(timeline.health)


def test_two_workers_and_one_file() -> None:
    timeline, diagnosis = seen("29")
    (device,) = diagnosis.devices
    assert timeline.meta.world_size == 2
    assert (device.busy_ns, device.window_ns) == (950 * US, 1000 * US)
    assert lengths(diagnosis) == [50]


def test_busy_is_never_called_well_used() -> None:
    """38: a kernel that is resident may leave most of the device idle."""
    for entry in ("08", "13"):  # 100 % and 99.9 % busy
        _, diagnosis = seen(entry)
        said = " ".join(run(need(f"reports/{entry}.json")).stdout.decode().lower().split())
        assert diagnosis.total("busy_ns") >= 0.99 * diagnosis.total("window_ns")
        assert "never that the device is well used" in said
        assert not any(word in said for word in ("utili", "fully", "saturated"))


def test_an_amd_trace() -> None:
    """20: stream 0 is a stream, HIP's calls are launches, hipMemcpyWithStream blocks."""
    timeline, diagnosis = seen("20")
    kinds = sorted(timeline.device_ops.kind.to_list())
    assert kinds == ["kernel", "kernel", "memcpy"]
    assert set(timeline.device_ops.stream.tolist()) == {0}
    assert sorted(lengths(diagnosis)) == [2, 400]
    (read,) = diagnosis.reads
    assert read.name == "hipMemcpyWithStream"
