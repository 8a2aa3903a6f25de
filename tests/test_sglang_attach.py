"""`bubblescope trace --attach URL` against a server on this machine that plays SGLang."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from bubblescope.cli.trace import trace
from bubblescope.errors import BubblescopeError
from bubblescope.targets.sglang import attach
from bubblescope.targets.sglang.server import Server
from tests.corpus import need
from tests.e2e.program import ENV, decode_loop
from tests.sglang_server import FakeServer, profile

LOOP = [profile(decode_loop(8))]


def left() -> list[Path]:
    """Folders that were not cleared away."""
    return list(Path(tempfile.gettempdir()).glob("bubblescope-attach-*"))


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "bubblescope", "trace", "--target", "sglang", *words]


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*words), capture_output=True, text=True, timeout=60, check=False, env=ENV | env
    )
    assert left() == []
    return done


def health(timeline: Any) -> dict[str, str]:
    return dict(zip(timeline.health.kind.to_list(), timeline.health.note.to_list(), strict=True))


# -- the whole of it ---------------------------------------------------------------------------


def test_the_engines_own_file_is_diagnosed() -> None:
    data = need("traces/sglang_ling3_h200_nextn_seqlen_sync.json.gz").read_bytes()
    with FakeServer([data])() as url:
        done = run("--attach", url, "--step", "20", "--steps", "10", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    # As tests/test_sglang_pair.py has it of this file.
    assert report["steps"]["count"] == 9
    assert report["steps"]["median_ns"] // 1000 == 8_690
    assert report["reads"][0]["name"] == "cudaStreamSynchronize"


def test_the_report_says_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "w.bscope"
    with FakeServer(LOOP)() as url:
        done = run("--attach", url, "--step", "5", "--steps", "4", "-o", str(path))
        assert done.returncode == 0
        first = " ".join(done.stdout.split())
        assert f"sglang: inclusionAI/Ling-3.0-flash at {url}" in first
        assert "a request of bubblescope's, from about step 5 on" in first
    again = subprocess.run(
        [sys.executable, "-m", "bubblescope", "diagnose", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=ENV,
    )
    assert again.stdout == done.stdout


# -- what is asked of the server ---------------------------------------------------------------


def test_an_idle_server_is_sent_one_request_and_recorded_some_steps_into_it() -> None:
    server = FakeServer(LOOP)
    with server() as url:
        timeline = attach.record(Server(url), first=40, steps=4)
        assert not server.profiling
    asked = dict(server.log)
    assert [path for path, _ in server.log].count("/generate") == 1
    assert asked["/generate"]["stream"]
    assert asked["/generate"]["sampling_params"]["ignore_eos"]
    # Room for step 40, the 4, and 60 more at six tokens a step.
    assert asked["/generate"]["sampling_params"]["max_new_tokens"] == 104 * 6
    assert asked["/start_profile"]["num_steps"] == 5
    assert asked["/start_profile"]["with_stack"] is False
    # Steps run on between the answer and the order; none can be missing.
    assert server.steps_at_start >= 38
    assert timeline.meta.about["server"] == url
    assert timeline.meta.source == "sglang"
    assert "every graph node and every framework op" in health(timeline)["capture"]


def test_the_step_without_the_profiler_is_timed_as_the_answer_comes_in() -> None:
    with FakeServer(LOOP)() as url:
        timeline = attach.record(Server(url), first=40, steps=4)
        early = attach.record(Server(url), first=5, steps=4)
    step = timeline.meta.unprofiled_step_ns
    assert step is not None
    assert 2_000_000 <= step < 20_000_000  # the server sleeps for 2 ms
    assert early.meta.unprofiled_step_ns is None


@pytest.mark.parametrize("asked", [{"request": False}, {"request": True}])
def test_a_busy_server_is_recorded_as_it_is(asked: dict[str, bool]) -> None:
    server = FakeServer(LOOP, busy=2)
    with server() as url:
        timeline = attach.record(Server(url), first=200, steps=4, **asked)
    assert "/generate" not in dict(server.log)
    assert timeline.meta.about["run"].endswith(f"at {url}, its traffic")


def test_a_request_that_ends_early_still_gives_what_there_is() -> None:
    server = FakeServer(LOOP, gives=60)  # 20 steps
    with server() as url:
        timeline = attach.record(Server(url), first=5, steps=2000)
        assert not server.profiling
    assert len(timeline.device_ops) == 16


def test_all_ranks_are_read(tmp_path: Path) -> None:
    files = [profile(decode_loop(8), rank, 2) for rank in range(2)]
    info = {"tp_size": 2, "internal_states": [{"world_size": 2}]}
    with FakeServer(files, info=info)() as url:
        timeline = attach.record(Server(url), first=2, steps=4)
    assert sorted(set(timeline.device_ops.rank.tolist())) == [0, 1]
    assert len(timeline.device_ops) == 32
    assert "ranks missing" not in health(timeline)


def test_ranks_on_other_machines_are_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "FILES_S", 0.2)
    info = {"tp_size": 4, "internal_states": [{"world_size": 4}]}
    with FakeServer(LOOP, info=info)() as url:
        timeline = attach.record(Server(url), first=2, steps=4)
    assert health(timeline)["ranks missing"].startswith("3 of 4 ranks wrote no file")


def test_the_older_names_do_as_well() -> None:
    with FakeServer(LOOP, missing={"/server_info", "/v1/loads"})() as url:
        timeline = attach.record(Server(url), first=2, steps=4)
    assert timeline.meta.about["model"] == "inclusionAI/Ling-3.0-flash"


def test_no_key_reaches_the_recording() -> None:
    with FakeServer(LOOP, key="secret-key")() as url:
        timeline = attach.record(Server(url, "secret-key"), first=2, steps=4)
    assert "secret" not in json.dumps(timeline.meta.about)
    assert "speculative_num_draft_tokens=6" in timeline.meta.about["engine"]
    assert timeline.meta.about["accepted"] == "3.21 tokens a step since the server started"


def test_simulated_acceptance_is_said_where_the_server_says_it() -> None:
    state = {"world_size": 1, "env_vars": {"SGLANG_SIMULATE_ACC_LEN": "3.25"}}
    with FakeServer(LOOP, info={"internal_states": [state], "load_format": "dummy"})() as url:
        about = attach.record(Server(url), first=2, steps=4).meta.about
    assert about["acceptance"] == "simulated acceptance, 3.25 tokens a step in the mean"
    assert about["weights"] == "dummy"


# -- what goes wrong ---------------------------------------------------------------------------

REFUSALS = {
    "no key": (
        {"key": "k"},
        "/server_info: the server wants another key (HTTP 401); --api-key KEY",
    ),
    "no profiler": ({"missing": {"/start_profile"}}, ": has no /start_profile (HTTP 404)"),
    "another server": (
        {"missing": {"/server_info", "/get_server_info"}},
        ": has no /get_server_info (HTTP 404); is it the server of SGLang 0.5 or later?",
    ),
    "busy profiler": ({"fails": True}, "/start_profile: the profiler does not start; one window"),
    "elsewhere": ({"elsewhere": True}, ": its profiler wrote nothing into "),
    "short": ({"info": {"max_req_input_len": 100}}, ": takes requests of 100 tokens, too few for"),
    "ends": ({"gives": 9}, "/generate: the request ended: after 9 tokens; ask for earlier steps"),
    "no stop": (
        {"info": {"internal_states": [{"env_vars": {"SGLANG_PROFILE_V2": "1"}}]}},
        ": runs with SGLANG_PROFILE_V2, whose profiler cannot be stopped; start it without",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_it_is_said_in_one_line(name: str) -> None:
    changed, said = REFUSALS[name]
    server = FakeServer(LOOP, **changed)
    with server() as url, pytest.raises(BubblescopeError) as raised:
        attach.record(Server(url), first=40, steps=4)
    assert not server.profiling
    assert str(raised.value).startswith(f"{url}{said}")
    assert left() == []


def test_a_busy_server_elsewhere_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "STALL_S", 0.0)
    server = FakeServer(LOOP, busy=1, elsewhere=True)
    with server() as url, pytest.raises(BubblescopeError, match="wrote nothing into"):
        attach.record(Server(url), first=0, steps=1, request=False)
    assert left() == []


def test_a_key_that_fits_opens_it() -> None:
    server = FakeServer(LOOP, key="k")
    with server() as url:
        assert attach.record(Server(url, "k"), first=2, steps=4)
        asked = ("--attach", url, "--step", "2", "--steps", "4")
        assert run(*asked, SGLANG_API_KEY="k").returncode == 0
        done = run(*asked, "--api-key", "other")
    assert (done.returncode, done.stdout) == (2, "")
    said = f"{url}/server_info: the server wants another key (HTTP 401); --api-key KEY or "
    assert done.stderr == f"bubblescope: {said}SGLANG_API_KEY, its admin key where it has one\n"


@pytest.mark.parametrize("url", ["127.0.0.1:30000", "http://", "http://x:port", "ftp://x"])
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(BubblescopeError, match=r"^--attach .*: write http://HOST:PORT$"):
        Server(url)


def test_nobody_listens() -> None:
    done = run("--attach", "http://127.0.0.1:1")
    said = "http://127.0.0.1:1: connection refused; does the server run there?"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"bubblescope: {said}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--attach", "http://x", "--tp", "2"), "--tp is not for a server that runs already"),
        (
            ("--attach", "http://x", "--level", "node"),
            "--level is not for a server that runs already",
        ),
        (
            ("--attach", "http://x", "--no-request", "--step", "9"),
            "--step counts a request of ours; leave it out, or --no-request",
        ),
        (("--no-request",), "--no-request is for --attach URL"),
        (("--api-key", "k"), "--api-key is for --attach URL"),
        (
            ("--attach", "http://x", "--", "python", "x.py"),
            "--attach records a server; leave it out, or the program",
        ),
    ],
)
def test_options_that_would_change_nothing_are_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(BubblescopeError) as raised:
        trace.main(["--target", "sglang", *words], standalone_mode=False)
    assert str(raised.value) == said


def test_an_interrupt_leaves_the_profiler_off_and_no_request() -> None:
    server = FakeServer(LOOP)
    with server() as url:
        child = subprocess.Popen(
            command("--attach", url, "--step", "2", "--steps", "2000"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENV,
        )
        deadline = time.monotonic() + 20
        while not server.profiling and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.profiling
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=20)
        deadline = time.monotonic() + 5
        while server.requests and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not server.profiling
        assert not server.requests
    assert (child.returncode, stdout, stderr) == (130, "", "bubblescope: stopped\n")
    assert left() == []
