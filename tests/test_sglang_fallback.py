"""SGLang where CUPTI cannot be had: torch.profiler records in the scheduler's process.

SGLang and torch's profiler are stand-ins; the latter writes twelve steps of its own making.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bubblescope.capture.cupti import library
from bubblescope.errors import BubblescopeError
from bubblescope.targets.sglang.recorder import Recorder
from bubblescope.targets.sglang.target import SGLang

TESTS = Path(__file__).parent
WHY = "CUPTI 13.4 or later"


def engines() -> set[str]:
    """Command lines of the engines that run."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return {x for x in listed.stdout.splitlines() if "bubblescope.targets.sglang.engine" in x}


@pytest.fixture(scope="module")
def make() -> Iterator[Callable[[str], SGLang]]:
    """Makes targets whose engines have no CUPTI; each is stopped, and nothing is left of them."""
    made: dict[str, SGLang] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "find", lambda: None)
        path = [str(TESTS / "fake_sglang"), os.environ.get("PYTHONPATH")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))

        def make(amiss: str = "") -> SGLang:
            if amiss not in made:
                patch.setenv("FAKE_PROFILER", amiss)
                made[amiss] = SGLang()
                made[amiss].start()
            return made[amiss]

        yield make
        for target in made.values():
            target.stop()
        assert not engines()


def test_torch_profiler_records_the_steps_asked_for(make) -> None:
    recording = make().record("graph", 30, 4)
    timeline = recording.timeline
    assert recording.window == (30, 34)
    assert timeline.meta.capture == "torch.profiler"
    assert timeline.meta.level == "node"
    assert len(timeline.device_ops) == 24
    # Two before the first, one after the last.
    assert timeline.steps.number.tolist() == [28, 29, 30, 31, 32, 33, 34]
    stages = set(timeline.ranges.name.to_list())
    assert {"schedule", "draft", "verify", "extend", "results", "run batch"} <= stages
    assert timeline.meta.unprofiled_step_ns is not None
    # Six tokens in a row: four of the first kind and three of the second.
    assert timeline.meta.about["routing"] == (
        "7.0 of 16 experts a layer for 6 tokens in a row (at most 7; each chooses 2), mean of 2 "
        "layers and 42 groups of what was generated; rejected drafts are not in it"
    )


def test_the_recording_says_why_and_what_is_lost(make) -> None:
    timeline = make().record("node", 5, 2).timeline
    health = dict(zip(timeline.health.kind.to_list(), timeline.health.note.to_list(), strict=True))
    assert health["fallback"].startswith(
        f"recorded with torch.profiler because CUPTI could not be used: {WHY}"
    )
    assert "every graph node and every framework op" in health["capture"]
    assert timeline.steps.number.tolist() == [3, 4, 5, 6, 7]


def test_where_that_fails_too_both_reasons_are_said_and_the_engine_goes_on(make) -> None:
    target = make("export fails")
    with pytest.raises(BubblescopeError) as raised:
        target.record("graph", 5, 2)
    said = str(raised.value)
    assert said.startswith(f"target sglang: {WHY}")
    assert said.endswith("; in its place, torch.profiler: RuntimeError: disk full")
    assert len(target.run(20).began) == 21


def test_a_recording_that_a_generation_left_on_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "find", lambda: None)
    recorder = Recorder(tmp_path)
    recorder.prepare(rank=0)
    recorder.arm("a", "node", first=2, steps=50)
    for _ in range(5):
        recorder.step()
    assert recorder.recording
    recorder.arm("b", "", first=0, steps=2)
    for _ in range(4):
        recorder.step()
    assert not recorder.armed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b-0.json", "cupti-0.json"]


# -- an engine that ends -----------------------------------------------------------------------


def test_an_engine_whose_scheduler_dies_fails_at_once(make) -> None:
    target = make("export fails")
    began = time.monotonic()
    with pytest.raises(BubblescopeError) as raised:
        target._engine().ask(do="call", method="die", parameters={})
    assert time.monotonic() - began < 20
    said = str(raised.value)
    assert said.startswith("target sglang: RuntimeError: the scheduler ended with 9 (")
    Path(said.rpartition("its log: ")[2]).unlink()
