"""The target sglang against a stand-in for SGLang: processes, plugin, switches and windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bubblescope.errors import BubblescopeError
from bubblescope.targets import registry
from bubblescope.targets.sglang.recorder import Recorder
from bubblescope.targets.sglang.settings import SLICE, Settings
from bubblescope.targets.sglang.target import SGLang
from bubblescope.timeline import bscope
from optimizations.registry import applied
from tests.capture_fakes import FakeBackend

FAKE = Path(__file__).parent / "fake_sglang"


@pytest.fixture
def _fake_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.pathsep.join(filter(None, [str(FAKE), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.syspath_prepend(str(FAKE))


def descendants() -> set[str]:
    """Command lines of all processes below this one that belong to an engine."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return {x for x in listed.stdout.splitlines() if "bubblescope.targets.sglang.engine" in x}


@pytest.mark.usefixtures("_fake_sglang")
def test_steps_of_a_generation_are_counted_and_nothing_is_left_behind() -> None:
    target = SGLang()
    target.start()
    folder = target._engine().folder
    assert descendants()
    made = target.run(20)
    # One more than was asked for begins before the window is known to be whole.
    assert len(made.began) == 21
    assert list(made.began) == sorted(made.began)
    # 23 steps of 3.25 tokens in the mean, a tenth more, and ten times what a step can give.
    # The prompt gave the first of them, the stand-in's steps three each.
    assert made.tokens + 1 == len(made.ids) == int(23 * 3.25 * 1.1) + 60
    assert made.token_steps == 47
    assert target.about()["sglang"] == "0.5.23"
    target.stop()
    assert not descendants()
    assert not folder.exists()
    target.stop()


@pytest.mark.usefixtures("_fake_sglang")
def test_the_pass_switches_the_read_back_in_the_running_engine() -> None:
    target = SGLang(as_shipped=False)
    target.start()
    try:
        assert set(target.run(4).ids) == {1}
        with applied(["seq-len-sync"], target):
            assert set(target.run(4).ids) == {0}
        assert set(target.run(4).ids) == {1}
    finally:
        target.stop()


@pytest.mark.usefixtures("_fake_sglang")
def test_as_shipped_nothing_is_switched() -> None:
    target = SGLang()
    target.start()
    try:
        assert set(target.run(4).ids) == {0}
    finally:
        target.stop()


@pytest.mark.usefixtures("_fake_sglang")
def test_a_window_without_cupti_says_so_in_the_parent() -> None:
    target = SGLang()
    try:
        with pytest.raises(BubblescopeError, match=r"^target sglang: CUPTI 13\.4 or later"):
            target.record("graph", 5, 2)
    finally:
        target.stop()
    assert not descendants()


@pytest.mark.usefixtures("_fake_sglang")
def test_an_engine_that_cannot_start_is_one_line_with_its_log() -> None:
    target = SGLang(engine=("fail=true",))
    with pytest.raises(BubblescopeError) as raised:
        target.start()
    said = str(raised.value)
    assert said.startswith("target sglang: ValueError: the model has no such layer (")
    log = Path(said.rpartition("its log: ")[2])
    assert "Traceback" in log.read_text()
    log.unlink()
    assert not descendants()


@pytest.mark.usefixtures("_fake_sglang")
def test_the_command_prints_one_line_and_exits_2() -> None:
    words = ["trace", "--target", "sglang", "--step", "5", "--steps", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "bubblescope", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("bubblescope: target sglang: CUPTI 13.4 or later")
    assert done.stderr.count("\n") == 1


def test_without_sglang_the_target_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda _name: None)
    with pytest.raises(
        BubblescopeError, match=r"needs sglang.*pip install 'bubblescope\[sglang\]'"
    ):
        registry.get("sglang")


# -- the recorder in the scheduler's process --------------------------------------------------


def test_a_window_holds_the_steps_asked_for_and_one_more_on_either_side(tmp_path: Path) -> None:
    backend = FakeBackend()
    recorder = Recorder(tmp_path, backend)
    recorder.prepare(rank=0)
    recorder.arm("w", "node", first=30, steps=3)
    recording = []
    for number in range(40):
        if recorder.armed:
            recorder.step()
        if recorder.recording:
            recording.append(number)
            recorder.span("verify", 7, 10 * number, 10 * number + 1)
        backend.work()
    assert recording == [28, 29, 30, 31, 32, 33]
    timeline = bscope.read(tmp_path / "w-0.bscope")
    assert timeline.steps.number.tolist() == [28, 29, 30, 31, 32, 33]
    assert (timeline.steps.end[:-1] <= timeline.steps.start[1:]).all()
    assert timeline.ranges.start.tolist() == [280, 290, 300, 310, 320, 330]
    assert timeline.ranges.name.to_list() == ["verify"] * 6
    assert len(timeline.device_ops) == 6
    assert not list(tmp_path.glob("*.draft"))


def test_a_recording_that_a_generation_left_on_is_dropped(tmp_path: Path) -> None:
    class Backend(FakeBackend):
        def abandon(self) -> None:
            self.stop()

    backend = Backend()
    recorder = Recorder(tmp_path, backend)
    recorder.arm("a", "node", first=2, steps=50)
    for _ in range(10):
        recorder.step()
    assert recorder.recording
    recorder.arm("b", "", first=0, steps=2)
    assert not recorder.recording
    for _ in range(4):
        recorder.step()
    assert not recorder.armed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b-0.json"]


# -- settings ---------------------------------------------------------------------------------


def test_the_slice_is_the_default() -> None:
    made = Settings.of(None, None, (), None)
    assert made.arguments["model_path"] == str(SLICE)
    assert made.arguments["speculative_draft_model_path"] == str(SLICE)
    assert made.arguments["load_format"] == "dummy"
    assert made.accept_length == 3.25
    assert made.most_tokens == 6
    assert "simulated acceptance" in made.about()["acceptance"]
    assert (SLICE / "config.json").is_file()


def test_a_users_model_gets_only_what_the_user_says() -> None:
    made = Settings.of("/models/ling", 4, ("attention_backend=fa3", "cuda_graph_max_bs=8"), None)
    assert made.arguments == {
        "model_path": "/models/ling",
        "disable_radix_cache": True,
        "max_running_requests": 1,
        "tp_size": 4,
        "attention_backend": "fa3",
        "cuda_graph_max_bs": 8,
    }
    assert made.accept_length == 0
    assert made.most_tokens == 1
    assert made.about()["acceptance"] == "the model's own"


def test_speculation_can_be_switched_off() -> None:
    made = Settings.of(None, None, ("speculative_algorithm=null",), None)
    assert not [name for name in made.arguments if name.startswith("speculative")]
    assert made.accept_length == 0


@pytest.mark.parametrize("text", ["tp", "=3", "a-b=3"])
def test_an_argument_must_have_a_name_and_a_value(text: str) -> None:
    with pytest.raises(BubblescopeError, match="write NAME=VALUE"):
        Settings.of(None, None, (text,), None)
