"""`bubblescope diagnose` as a user runs it: what it prints, refuses and writes."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bubblescope.cli import main
from tests.e2e.program import ENV, SYNC, decode_loop, event, listing, refusal, report, run

# What it prints --------------------------------------------------------------------------------


def test_text(decode: Path) -> None:
    done = run(decode)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.startswith("decode.json\n")
    assert re.search(r"6 whole, decode .*median 100 us", text)
    assert re.search(r"cudaStreamSynchronize +serve\.py:12 decode +1\.0 +65 +35 +175 +40 ", text)
    assert max(map(len, text.splitlines())) <= 100


def test_launches_in_a_few_lines_or_in_full(decode: Path) -> None:
    few, every = run(decode).stdout, run(decode, "--launches").stdout
    assert b"--launches shows all figures" in few
    assert b"call to start, device idle" not in few
    assert b"call to start, device idle" in every


def test_json(decode: Path) -> None:
    told = report(decode)
    assert {k: told[k] for k in ("window_ns", "busy_ns", "idle_ns", "unknown_ns")} == {
        "window_ns": 560_000,
        "busy_ns": 360_000,
        "idle_ns": 200_000,
        "unknown_ns": 0,
    }
    assert {part: ns for part, ns in told["parts_ns"].items() if ns} == {
        "read tail": 25_000,
        "host gap": 125_000,
        "launch call": 25_000,
        "launch latency": 25_000,
    }
    assert told["overlapped_ns"] == 0
    assert (told["steps"]["count"], told["steps"]["median_ns"]) == (6, 100_000)
    (device,) = told["devices"]
    shared = device.keys() & told.keys()
    assert {"window_ns", "busy_ns", "idle_ns", "unknown_ns", "overlapped_ns", "parts_ns"} <= shared
    assert all(device[key] == told[key] for key in shared)
    (read,) = told["reads"]
    # Each waits 65 and is followed by 5 + 25 + 5 of late time in a bubble of 40, but for the last.
    assert {
        "name": "cudaStreamSynchronize",
        "site": {"file": "serve.py", "line": 12, "function": "decode"},
        "calls": 6,
        "calls_per_step": 1,
        "blocked_ns": 6 * 65_000,
        "exposed_idle_ns": 5 * 35_000,
        "exposed_idle_ns_per_step": 35_000,
        "idle_after_ns": 5 * 40_000,
    }.items() <= read.items()
    for finding in told["findings"]:
        assert {"kind", "title", "exposed_idle_ns_per_step", "passes"} <= finding.keys()
    assert (told["health"], told["warnings"]) == ([], [])


def test_json_ends_with_one_newline(decode: Path) -> None:
    assert run(decode, "--json").stdout.endswith(b"}\n")


def test_health_has_kind_count_and_note(tmp_path: Path) -> None:
    lost = event("cuda_runtime", "cudaLaunchKernel", 605, 1, correlation=99)
    path = tmp_path / "lost.json"
    path.write_text(json.dumps([*decode_loop(), lost]))
    (note,) = report(path)["health"]
    assert note.keys() >= {"kind", "count", "note"}
    assert note["count"] == 1


def test_top_limits_the_rows_of_the_text_only() -> None:
    def names(text: bytes) -> set[bytes]:
        reads = text.partition(b"Blocking reads")[2].partition(b"\n\n")[0]
        return set(re.findall(rb"cuda\w+", reads))

    assert len(names(run(SYNC).stdout)) == 3
    assert names(run(SYNC, "--top", "1").stdout) == {b"cudaStreamSynchronize"}
    assert run(SYNC, "--json", "--top", "1").stdout == run(SYNC, "--json").stdout


# What it refuses -------------------------------------------------------------------------------

CONTENT = {
    "empty": (b"", "empty"),
    "packed nothing": (gzip.compress(b""), "nothing in it"),
    "text": (b"hello\nworld\n", "not a trace"),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(64), "not a trace"),
    "other JSON": (b'{"a": 1}', ""),
    "cut JSON": (json.dumps({"traceEvents": decode_loop()}).encode()[:700], ""),
    "cut gzip": (gzip.compress(json.dumps(decode_loop()).encode())[:150], "cut short"),
    "no device": (json.dumps([event("cpu_op", "aten::mm", 0, 1)]).encode(), ""),
    "other zip": (b"PK\x03\x04" + bytes(99), ""),
}


@pytest.mark.parametrize("what", CONTENT)
def test_wrong_content(what: str, tmp_path: Path) -> None:
    content, word = CONTENT[what]
    path = tmp_path / "input.json"
    path.write_bytes(content)
    message = refusal(run(path))
    assert refusal(run(path, "--json")) == message
    assert message.startswith(str(path))
    assert word in message


def test_no_such_file_and_a_folder(tmp_path: Path) -> None:
    assert "no such file" in refusal(run(tmp_path / "none.json"))
    assert "is a folder" in refusal(run(tmp_path))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read any file")
def test_no_permission(decode: Path) -> None:
    decode.chmod(0)
    assert "no permission" in refusal(run(decode))


@pytest.fixture
def sigpipe() -> Iterator[None]:
    """The command sets how its process takes SIGPIPE: here that is pytest's."""
    before = signal.getsignal(signal.SIGPIPE)
    yield
    signal.signal(signal.SIGPIPE, before)


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.usefixtures("sigpipe")
def test_no_permission_as_played(
    decode: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = Path.open

    def denied(self: Path, *how: Any, **more: Any) -> Any:
        if self != decode:  # pytest opens the modules that are imported meanwhile
            return opened(self, *how, **more)
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(SystemExit) as stopped:
        main(["diagnose", str(decode)])
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    assert err.startswith(f"bubblescope: {decode}: no permission")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--nope"],
        ["--top", "0"],
        ["--top", "many"],
        ["--marker"],
        ["second.json"],
        *(["--window", w] for w in ["5", "a:b", "5:2", "3:3", "1:2:3", "", "2.5:3", "2-5", "2:5 "]),
        *(["--window", w] for w in ["6:9", "100:", ":0"]),  # the recording has steps 0 to 5
        ["--marker", "nope"],
    ],
    ids=" ".join,
)
def test_wrong_options(options: list[str], decode: Path) -> None:
    message = refusal(run(decode, *options))
    if options[0] in ("--window", "--top", "--nope"):
        assert options[0] in message


def test_missing_argument_and_command() -> None:
    refusal(run())
    for arguments in ([], ["nope"]):
        words = [sys.executable, "-m", "bubblescope", *arguments]
        done = subprocess.run(words, capture_output=True, timeout=60, check=False, env=ENV)
        if arguments:
            assert "nope" in refusal(done)
        assert b"Traceback" not in done.stderr


# Steps asked for -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "window_us", "bubbles"),
    [("2:5", 300, 3), ("4:", 200, 2), (":2", 160, 1), (":", 560, 5), ("0:1", 60, 0)],
)
def test_window(window: str, window_us: int, bubbles: int, decode: Path) -> None:
    # The first step has no bubble before it: 60 us, not 100.
    told = report(decode, "--window", window)
    assert told["window_ns"] == 1000 * window_us
    assert told["idle_ns"] == bubbles * 40_000
    assert told["parts_ns"]["host gap"] == bubbles * 25_000
    assert told["busy_ns"] == told["window_ns"] - told["idle_ns"]


def test_windows_add_up_to_their_steps() -> None:
    steps = {s["number"]: s["duration_ns"] for s in report(SYNC)["steps"]["each"]}
    middle = report(SYNC, "--window", "2:5")
    assert middle["window_ns"] == steps[2] + steps[3] + steps[4]
    assert [s["number"] for s in middle["steps"]["each"]] == [2, 3, 4]
    assert middle["steps"]["median_ns"] == sorted([steps[2], steps[3], steps[4]])[1]
    first, last, both = (report(SYNC, "--window", w) for w in (":5", "5:", ":"))
    for key in ("window_ns", "busy_ns", "idle_ns", "overlapped_ns"):
        assert first[key] + last[key] == both[key]
    for part, ns in both["parts_ns"].items():
        assert first["parts_ns"][part] + last["parts_ns"][part] == ns
    assert both["window_ns"] == sum(ns for number, ns in steps.items() if number >= 0)


def test_a_window_that_is_not_there_says_what_is(decode: Path) -> None:
    message = refusal(run(decode, "--window", "6:9"))
    assert "6:9" in message
    assert "0 to 5" in message


def test_marker_by_its_name() -> None:
    assert report(SYNC, "--marker", "scheduler.run_batch") == report(SYNC)
    assert report(SYNC, "--marker", "draft")["steps"]["marker"] == "draft"


@pytest.mark.parametrize("marker", ["decode #", "decode 12"])
def test_marker_with_its_numbers_open(marker: str, decode: Path) -> None:
    assert report(decode, "--marker", marker)["steps"]["count"] == 6


def test_a_marker_that_is_not_there_says_which_are(decode: Path) -> None:
    message = refusal(run(decode, "--marker", "nope"))
    assert "nope" in message
    assert "decode #" in message


# Output files ----------------------------------------------------------------------------------


def test_output_is_saved_and_reads_back(decode: Path) -> None:
    saved = decode.with_name("saved.bscope")
    done = run(decode, "--json", "-o", saved)
    assert done.returncode == 0
    assert done.stderr.decode().splitlines() == [f"recording saved as {saved}"]
    assert set(listing(decode.parent)) == {"decode.json", "saved.bscope"}
    assert report(saved) == json.loads(done.stdout)


def test_existing_output(decode: Path) -> None:
    saved = decode.with_name("saved.bscope")
    saved.write_bytes(b"what was there")
    before = listing(decode.parent)
    assert "--force" in refusal(run(decode, "-o", saved))
    assert listing(decode.parent) == before
    assert run(decode, "-o", saved, "--force").returncode == 0
    assert report(saved)["window_ns"] == 560_000


@pytest.mark.parametrize(
    ("output", "word"),
    [
        ("no/saved.bscope", "cannot write here"),
        ("saved.json", ".bscope"),
        ("folder.bscope", "is a folder"),
        ("decode.json/saved.bscope", ""),
    ],
)
def test_output_that_cannot_be(output: str, word: str, decode: Path) -> None:
    (decode.parent / "folder.bscope").mkdir()
    before = listing(decode.parent)
    assert word in refusal(run(decode, "-o", decode.parent / output, "--force"))
    assert listing(decode.parent) == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that even root cannot write")
def test_output_in_a_folder_that_cannot_be_written(decode: Path) -> None:
    assert "cannot write here" in refusal(run(decode, "-o", "/proc/saved.bscope"))


def test_nothing_is_saved_of_what_is_refused(decode: Path) -> None:
    before = listing(decode.parent)
    refusal(run(decode, "--marker", "nope", "-o", decode.with_name("saved.bscope")))
    assert listing(decode.parent) == before


@pytest.mark.parametrize("source", ["json", "bscope"])
def test_an_input_is_never_written_to(source: str, decode: Path) -> None:
    path = decode.with_name("input.bscope")  # what it is, its content says
    shutil.copyfile(decode if source == "json" else SYNC, path)
    before, status = path.read_bytes(), path.stat()
    run(path)
    run(path, "-o", decode.with_name("saved.bscope"))
    for same in (path, path.parent / "." / "input.bscope"):
        refusal(run(path, "-o", same, "--force"))
    after = path.stat()
    assert path.read_bytes() == before
    assert (after.st_mtime_ns, after.st_ino) == (status.st_mtime_ns, status.st_ino)
