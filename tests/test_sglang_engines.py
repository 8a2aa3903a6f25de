"""Engines that differ from the slice's, break on the way, or are stopped before they are up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bubblescope.ablate import launch
from bubblescope.errors import BubblescopeError
from bubblescope.targets.sglang import link
from bubblescope.targets.sglang.link import Link
from bubblescope.targets.sglang.plugin import REPLAYED, Plugin
from bubblescope.targets.sglang.settings import Settings
from bubblescope.targets.sglang.target import SGLang
from optimizations.registry import applied
from tests.sglang_fake import TESTS, engines, installed


@pytest.fixture(autouse=True)
def _fake() -> Iterator[None]:
    with installed():
        yield


# -- other models and arguments ----------------------------------------------------------------


def test_what_a_model_has_not_is_neither_on_nor_off() -> None:
    target = SGLang(engine=('model="without routers"',), as_shipped=False)
    target.start()
    try:
        with applied(["draft-extend-graph"], target):
            target.run(3)
        said = target._facts
        absent = {name for name, value in said.items() if value == "not in this model"}
        assert absent == {
            "router matvec up to",
            "align in one launch up to",
            "top-k",
            "gate",
            "KDA verify",
            "drafts' linear states",
        }
        assert said["draft-extend graph"] == "captured"
        with (
            applied(["router-moe"], target),
            pytest.raises(BubblescopeError, match="'router' cannot be switched on: router matvec"),
        ):
            target.run(3)
        with applied(["bf16-lm-head"], target):
            target.run(3)
    finally:
        target.stop()


def test_lengths_that_a_backend_needs_are_not_taken_from_it() -> None:
    target = SGLang(engine=("attention_backend=flashinfer",))
    target.start()
    try:
        with applied(["glue-graph"], target):  # as shipped but for that
            target.run(3)
        assert target._facts["sequence lengths"] == "read back each step"
        with (
            applied(["seq-len-sync"], target),
            pytest.raises(BubblescopeError, match="needs the lengths on the host") as raised,
        ):
            target.run(3)
        Path(str(raised.value).rpartition("its log: ")[2]).unlink()
    finally:
        target.stop()


def test_the_engine_says_how_many_tokens_it_verifies() -> None:
    target = SGLang(model="/models/x", engine=("verified=9", "speculative_algorithm=NEXTN"))
    assert target.settings.most_tokens == 1
    target.start()
    try:
        assert target.settings.most_tokens == 9
        assert len(target.run(30).began) == 31
        # 33 steps that may each give nine, a tenth more, and ten times what a step can give.
        assert len(target.run(30).ids) == int(33 * 9 * 1.1) + 90
    finally:
        target.stop()


@pytest.mark.parametrize(
    ("asked", "engine", "said"),
    [
        (7.0, (), "a step gives 1 to 6"),
        (0.5, (), "a step gives 1 to 6"),
        (2.0, ("speculative_algorithm=null",), "without speculation"),
    ],
)
def test_an_acceptance_that_cannot_be_is_refused(
    asked: float, engine: tuple[str, ...], said: str
) -> None:
    with pytest.raises(BubblescopeError, match=f"^--accept-length {asked:g}: .*{said}"):
        Settings.of(None, None, engine, asked)


def test_no_more_is_accepted_than_is_verified() -> None:
    engine = ("speculative_num_steps=1", "speculative_num_draft_tokens=2")
    assert Settings.of(None, None, engine, None).accept_length == 2


def test_a_count_is_a_number() -> None:
    with pytest.raises(
        BubblescopeError, match=r"^--engine speculative_num_draft_tokens=six: write"
    ):
        SGLang(engine=("speculative_num_draft_tokens=six",))


def test_variables_of_whoever_calls_are_said_or_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SGLANG_OPT_FUSED_KDA_VERIFY", "1")  # as in the published command
    monkeypatch.setenv("SGLANG_API_KEY", "hidden")
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "5")
    target = SGLang(model="/models/x")
    assert target.about()["environment"] == "SGLANG_OPT_FUSED_KDA_VERIFY=1"
    assert target.about()["acceptance"] == "the model's own"
    assert target._environment()["SGLANG_SIMULATE_ACC_LEN"] == "-1"
    target = SGLang(as_shipped=False)  # passes decide
    assert "environment" not in target.about()
    target.start()
    try:
        with applied(["pdl-chain", "router-moe", "bf16-lm-head", "draft-extend-graph"], target):
            target.run(3)  # what SGLang ships: graphs that the engine started with
        assert target._facts["KDA verify"] == "convolution and recurrence apart"
    finally:
        target.stop()


@pytest.mark.parametrize(("disabled", "times"), [("true", 0), ("false", 3)])
def test_a_prefix_cache_is_flushed_before_each_generation(disabled: str, times: int) -> None:
    target = SGLang(engine=(f"disable_radix_cache={disabled}",))
    target.start()  # generates once
    try:
        target.run(3)
        assert target._engine().log.read_text().count("flushed:") == times  # one is not taken
    finally:
        target.stop()


def test_an_ablation_takes_a_model_with_its_arguments(tmp_path: Path) -> None:
    file = tmp_path / "samples.json"

    def ablate(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bubblescope", "ablate", "--no-gates", *words]
        here = os.pathsep.join([str(TESTS / "fake_sglang"), str(TESTS.parent)])
        env = os.environ | {"PYTHONPATH": here}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)

    model = ["--target", "sglang", "--model", "/models/x", "--passes", "staged-kda,replay-ssm"]
    speculates = ["--engine", "speculative_algorithm=NEXTN", "--engine", "verified=4"]
    few = ["--starts", "1", "--rounds", "1", "--steps", "5", "--out", str(file)]
    done = ablate(*model, *speculates, *few)
    assert (done.returncode, "+ replay-ssm" in done.stdout) == (0, True), done.stderr
    assert "rows in 2 processes a start" in done.stderr
    assert json.loads(file.read_text())["options"] == {
        "model": "/models/x",
        "engine": ["speculative_algorithm=NEXTN", "verified=4"],
    }
    other = ablate("--resume", str(file), "--engine", "verified=5")
    assert other.returncode == 2
    assert other.stderr.startswith(f"bubblescope: {file}: was planned with --engine")
    assert other.stderr.count("\n") == 1
    # Without speculation there is nothing that such a pass concerns.
    none = ablate(*model, *few, "--force")
    assert none.returncode == 2
    assert "pass replay-ssm: needs speculation" in none.stderr.splitlines()[-1]


# -- what goes wrong on the way ----------------------------------------------------------------


def test_after_a_capture_that_failed_nothing_rests_on_what_was_half_done() -> None:
    """The switches were thrown, and graphs and weights of the old set were still in use."""
    target = SGLang()
    with installed(FAKE_CAPTURE="fails at 1"):
        target.start()
    try:
        with (
            applied(["bf16-gate"], target),
            pytest.raises(BubblescopeError, match="CUDA out of memory") as raised,
        ):
            target.run(3)
        Path(str(raised.value).rpartition("its log: ")[2]).unlink()
        target.run(3)  # as it started
        said = json.loads((target._engine().folder / "facts-0.json").read_text())
        assert said["gate"] == "torch.float32"
    finally:
        target.stop()


def test_the_end_of_an_engine_is_seen_though_a_process_of_it_stays() -> None:
    target = SGLang(engine=("forks=true",))
    began = time.monotonic()
    with pytest.raises(BubblescopeError, match=r"^target sglang: its process ended") as raised:
        target.start()
    assert time.monotonic() - began < 20
    Path(str(raised.value).rpartition("its log: ")[2]).unlink()


def test_an_engine_that_is_still_starting_is_ended_at_once() -> None:
    made = Link({"slow": 60}, {})
    folder = made.folder
    time.sleep(1.0)
    assert engines(folder)
    began = time.monotonic()
    made.close()
    assert time.monotonic() - began < 5
    assert not engines(folder)
    assert not folder.exists()


def test_ctrl_c_while_it_starts_leaves_nothing() -> None:
    target = SGLang(engine=("slow=60",))
    seen: list[Path] = []

    def interrupt(_stage: str, _share: float) -> None:
        raise KeyboardInterrupt

    real = Link.wait

    def wait(self: Link, progress: object) -> object:
        seen.append(self.folder)
        return real(self, progress)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            target.start(interrupt)
    assert not engines(seen[0])
    assert not seen[0].exists()


def test_the_files_of_its_sockets_are_gone_too() -> None:
    target = SGLang()
    target.start()
    (path,) = target._engine()._sockets
    assert Path(path).exists()
    target.stop()
    assert not Path(path).exists()


def test_whoever_ends_a_target_waits_longer_than_that_for_its_engine() -> None:
    assert launch.PATIENCE_S > link.STOP_S + link.GONE_S


def test_every_call_shows_that_it_is_waited_for() -> None:
    target = SGLang(as_shipped=False)
    target.start()
    said: list[str] = []
    try:
        target.run(3, lambda stage, _share: said.append(stage))
    finally:
        target.stop()
    assert "switching the engine" in said


# -- other releases ----------------------------------------------------------------------------


def test_a_release_without_what_is_hooked_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = Plugin(tmp_path)
    moved = "sglang.srt.speculative.eagle_utils.sample_of_old"
    there = {"json.dumps": print, "json.no_such": print, moved: print}
    monkeypatch.setattr(plugin, "hooks", lambda: there)
    plugin._introduce(SimpleNamespace(), rank=3, ranks=4)
    said = json.loads((tmp_path / "engine-3.json").read_text())
    assert said == {"ranks": 4, "tokens": 1, "missed": ["json.no_such", moved]}


def test_drafts_are_not_replayed_where_a_hook_has_no_place() -> None:
    gated = SGLang().gated()
    gated._set = gated._as_started() | {"accept_length": 0.0, "lengths_on_host": True, "on": []}
    gated._started_with = gated._arguments()
    gated._link = SimpleNamespace(close=lambda: None, over=False)  # type: ignore[assignment]
    gated._missed = [REPLAYED[1], "somewhere.else"]
    gated._version = "9.9"
    with pytest.raises(BubblescopeError, match=r"SGLang 9\.9 has no \S+eagle_sample, where"):
        gated._replayed(8, known=[], right=[])  # type: ignore[attr-defined]


def test_a_scheduler_without_the_plugin_is_said_with_its_version() -> None:
    with installed(SGLANG_FAKE_PLUGINS="none"):
        target = SGLang()
        with pytest.raises(BubblescopeError, match=r"did not run .* SGLang 0\.5\.23; 0\.5\.23 or"):
            target.start()
