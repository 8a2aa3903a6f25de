"""The embedded loop as a target: recorded, diagnosed, and with its first pass on and off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from bubblescope.capture.marks import StepMarks  # noqa: E402
from bubblescope.diagnose import diagnose  # noqa: E402
from bubblescope.diagnose.model import Diagnosis, Part  # noqa: E402
from bubblescope.errors import BubblescopeError  # noqa: E402
from bubblescope.targets import registry  # noqa: E402
from bubblescope.targets.ling import accept, scheduler  # noqa: E402
from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.loop import Loop  # noqa: E402
from bubblescope.targets.ling.target import Ling  # noqa: E402
from bubblescope.targets.ling.weights import Weights  # noqa: E402
from bubblescope.targets.record import Recording, record  # noqa: E402
from bubblescope.timeline import bscope  # noqa: E402
from optimizations.registry import applied  # noqa: E402

READ = "self._device.synchronize()"


@pytest.fixture
def target() -> Iterator[Ling]:
    made = Ling("cpu")
    made.start()
    yield made
    made.stop()


def recorded(target: Ling, *passes: str) -> Recording:
    with applied(passes, target):
        return record(target, target.backends()[0], first=2, steps=10)


def diagnosed(recording: Recording) -> Diagnosis:
    return diagnose(recording.timeline, window=recording.window)


def test_the_read_back_is_the_first_read_and_the_pass_removes_it(target: Ling) -> None:
    for _ in range(5):
        target.step()
    without = diagnosed(recorded(target))
    first = without.reads[0]
    assert first.name == "cpuStreamSynchronize"
    assert first.site is not None
    assert first.site.file == scheduler.__file__
    assert first.site.file.endswith("bubblescope/targets/ling/scheduler.py")
    source = Path(scheduler.__file__).read_text().splitlines()
    assert source[first.site.line - 1].strip() == READ
    assert first.site.function == "Scheduler._read_length"
    assert first.calls == 10
    assert first.exposed_idle_ns > 0

    with_pass = diagnosed(recorded(target, "seq-len-sync"))
    assert [r.name for r in with_pass.reads] == ["cpuEventSynchronize"]
    assert with_pass.reads[0].exposed_idle_ns < first.exposed_idle_ns
    for diagnosis in (without, with_pass):
        assert diagnosis.marker == "step"
        assert diagnosis.steps.number.tolist() == list(range(2, 12))
        assert diagnosis.parts_ns()[Part.UNRESOLVED] == 0
        assert diagnosis.clocks.shift == 0
        assert diagnosis.health == ()
        assert diagnosis.level == "node"


def test_a_recording_keeps_causality_and_holds_whole_steps(target: Ling) -> None:
    timeline = recorded(target).timeline
    calls, ops = timeline.host_calls, timeline.device_ops
    begun = dict(zip(calls.correlation.tolist(), calls.start.tolist(), strict=True))
    launched = [begun[c] for c in ops.correlation.tolist()]
    assert all(s >= b for s, b in zip(ops.start.tolist(), launched, strict=True))
    assert (ops.end >= ops.start).all()
    assert (ops.start[1:] >= ops.end[:-1]).all()  # one stream, one thing at a time
    assert timeline.steps.number.tolist() == list(range(13))
    assert (timeline.steps.start[1:] >= timeline.steps.end[:-1]).all()
    annotations = set(timeline.ranges.name.to_list())
    assert annotations == {"step", "plan", "draft", "verify", "commit", "extend", "results"}
    # Every step launches the same operations, but for pages sent.
    per_launch = [n for n in calls.name.to_list() if n == "cpuGraphLaunch"]
    assert len(per_launch) == 13 * 4
    assert set(ops.process.tolist()) == set(calls.process.tolist())
    assert len(set(calls.thread.tolist())) == 1


def test_the_step_time_without_the_recorder_comes_from_the_steps_before(target: Ling) -> None:
    recording = record(target, target.backends()[0], first=30, steps=5)
    assert recording.window == (30, 35)
    diagnosis = diagnosed(recording)
    assert diagnosis.steps.number.tolist() == list(range(30, 35))
    plain = recording.timeline.meta.unprofiled_step_ns
    recorded_ns = diagnosis.steps.median(diagnosis.steps.length_ns)
    assert plain is not None
    assert recorded_ns is not None
    assert recorded_ns / 4 < plain < 4 * recorded_ns
    assert recorded(target).timeline.meta.unprofiled_step_ns is None  # none came before


def test_a_recording_says_what_it_is_of_and_can_be_kept(target: Ling, tmp_path: Path) -> None:
    timeline = recorded(target).timeline
    about = timeline.meta.about
    assert "simulated acceptance, 2.5 tokens a step" in about["run"]
    assert "CPU thread" in timeline.meta.devices[0].name
    assert "CPU thread" in about["device"]
    assert "interpreter lock" in about
    assert "distinct experts" in about["routing"]
    bscope.write(timeline, tmp_path / "t.bscope")
    assert bscope.read(tmp_path / "t.bscope") == timeline


def test_the_pass_changes_no_token_and_leaves_no_trace() -> None:
    """Over several requests, with the pass on, off, and put on and off in between."""
    plain, fixed, mixed = Ling("cpu", seed=3), Ling("cpu", seed=3), Ling("cpu", seed=3)
    for target in (plain, fixed, mixed):
        target.start()
    with applied(["seq-len-sync"], fixed):
        for _ in range(220):
            fixed.step()
    for n in range(220):
        plain.step()
        with applied(["seq-len-sync"] if n // 7 % 2 else [], mixed):
            mixed.step()
    assert not any(t.length_stays_on_device for t in (plain, fixed, mixed))
    for target in (plain, fixed, mixed):
        target.stop()
    assert len(plain.tokens) > 500  # more than one request's 480
    assert plain.tokens == fixed.tokens == mixed.tokens


def test_replays_on_the_device_give_the_bits_of_the_stages_run_plainly(target: Ling) -> None:
    loop = target._loop
    assert loop is not None
    counts = accept.schedule(2.5, target.config.drafts, 0, "cpu")
    plain = Loop(target.config, Weights(0, "cpu", torch.float32), counts)
    pages = target.config.context // target.config.page
    order = torch.arange(target.config.context).view(pages, -1).flip(0).flatten()
    plain.table.copy_(order)  # pages are given out from the last
    given: list[int] = []
    with torch.no_grad():
        plain.reset()
        for _ in range(30):
            target.step()
            for stage in (plain.plan_and_draft, plain.verify, plain.commit, plain.extend):
                stage()
            *tokens, accepted = plain.result.tolist()
            given += tokens[: accepted + 1]
    target.finish()
    assert target.tokens == given
    for name in ("length", "token", "drafts", "plan", "result", "_draft_hidden", "_hidden"):
        assert torch.equal(getattr(loop, name), getattr(plain, name)), name
    for mine, theirs in zip(loop.model.kda(), plain.model.kda(), strict=True):
        assert torch.equal(mine.state, theirs.state)
        assert torch.equal(mine.history, theirs.history)


def test_without_simulated_acceptance_the_model_decides() -> None:
    target = Ling("cpu", accept_length=0)
    target.start()
    for _ in range(40):
        target.step()
    assert target.about()["acceptance"] == "the model's own, greedy"
    target.stop()
    assert 40 <= len(target.tokens) < 80  # random weights hardly ever accept a draft


def test_a_target_can_be_started_again_and_gives_the_same() -> None:
    target = Ling("cpu")
    given = []
    for _ in range(2):
        target.start()
        for _ in range(5):
            target.step()
        with pytest.raises(BubblescopeError, match="runs already"):
            target.start()
        target.stop()
        given.append(target.tokens)
    assert given[0] == given[1]
    with pytest.raises(BubblescopeError, match="is not started"):
        target.step()
    with pytest.raises(BubblescopeError, match="is not started"):
        target.backends()[0].start()


def test_a_request_ends_at_its_last_token_and_the_next_begins_anew() -> None:
    target = Ling("cpu", config=replace(Config.tiny(), request=20), accept_length=0)
    target.start()
    for _ in range(70):
        target.step()
    target.stop()
    given = target.tokens
    assert len(given) >= 63
    lengths = [n for n in range(20, 24) if given[n : 2 * n] == given[:n]]
    assert len(lengths) == 1  # nothing of the first request is left in any state or cache
    assert given[2 * lengths[0] : 3 * lengths[0]][:15] == given[:15]


def test_a_context_too_short_for_a_request_is_refused() -> None:
    with pytest.raises(BubblescopeError, match="context of 32 positions is too short"):
        Ling("cpu", config=replace(Config.tiny(), request=20, context=32)).start()


def test_targets_by_name() -> None:
    assert registry.names() == ("ling", "sglang")
    assert registry.get("ling", seed=4).name == "ling"
    with pytest.raises(BubblescopeError, match="no target 'vllm'; there are: ling, sglang"):
        registry.get("vllm")


def test_step_marks() -> None:
    marks = StepMarks()
    with marks.step(7):
        pass
    marks.add(8, 100, 250)
    table = marks.table()
    assert table.number.tolist() == [7, 8]
    assert table.end[1] - table.start[1] == 150
    with pytest.raises(ValueError, match="no"), marks.step(9):
        raise ValueError("no")
    assert len(marks) == 2
    assert len(StepMarks().table()) == 0
