"""`bubblescope view`, and --html of other commands, as a user runs them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
import pytest

from tests.e2e.program import ENV, SYNC, TRACES, decode_loop, event, refusal
from tests.view_ablation import ablation

NO_SYNC = TRACES / "ling3-h200-no-sync.bscope"
SCREENLESS = {k: v for k, v in ENV.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "bubblescope", *map(str, words)]


def run(*words: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(*words), capture_output=True, timeout=120, check=False, env=SCREENLESS
    )


def is_page(path: Path, recordings: int) -> bool:
    text = path.read_text()
    return text.startswith("<!doctype html>") and text.count('id="recording-') == recordings


def test_without_a_display_it_says_where_the_page_is():
    done = run("view", SYNC)
    assert (done.returncode, done.stderr) == (0, b"")
    path = Path(done.stdout.decode().strip())
    assert path.suffix == ".html"
    assert is_page(path, 1)
    path.unlink()


def test_html_writes_a_page_and_never_over_another_file(tmp_path: Path):
    path = tmp_path / "both.html"
    done = run("view", SYNC, NO_SYNC, "--html", path)
    assert (done.returncode, done.stdout.decode()) == (0, f"{path}\n")
    assert is_page(path, 2)
    before = path.read_bytes()
    assert (
        refusal(run("view", SYNC, "--html", path)) == f"{path}: exists already; --force replaces it"
    )
    assert path.read_bytes() == before
    assert run("view", SYNC, "--html", path, "--force").returncode == 0
    assert is_page(path, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["both.html"]


@pytest.mark.parametrize("words", [("diagnose", SYNC), ("compare", SYNC, NO_SYNC)])
def test_html_beside_the_report(words: tuple[str | Path, ...], tmp_path: Path):
    path = tmp_path / "page.html"
    done = run(*words, "--html", path, "--json")
    assert (done.returncode, done.stderr.decode()) == (0, f"page saved as {path}\n")
    assert json.loads(done.stdout) == json.loads(run(*words, "--json").stdout)
    assert is_page(path, len(words) - 1)


def test_html_of_a_loop_on_a_cpu_thread(tmp_path: Path):
    pytest.importorskip("torch", reason="the embedded loop needs torch")
    path = tmp_path / "loop.html"
    done = run("trace", "--device", "cpu", "--step", "2", "--steps", "3", "--html", path)
    assert (done.returncode, done.stderr.decode()) == (0, f"page saved as {path}\n")
    assert is_page(path, 1)


def test_several_ranks_are_on_one_page(tmp_path: Path):
    files = []
    for rank in range(2):
        told = {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": decode_loop()}
        files.append(tmp_path / f"rank{rank}.json")
        files[-1].write_text(json.dumps(told))
    path = tmp_path / "ranks.html"
    assert run("diagnose", *files, "--html", path).returncode == 0
    assert is_page(path, 1)


def test_an_ablation_s_json_with_a_recording_of_a_row(tmp_path: Path):
    result = tmp_path / "result.json"
    result.write_bytes(msgspec.json.format(msgspec.json.encode(ablation()), indent=2))
    path = tmp_path / "page.html"
    done = run("view", result, "--trace", f"none={SYNC}", "--html", path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert is_page(path, 1)


def test_an_ablation_keeps_its_short_recordings_in_its_page(tmp_path: Path):
    path, samples = tmp_path / "page.html", tmp_path / "samples.json"
    small = ("--starts", "1", "--rounds", "1", "--steps", "4", "--no-gates", "--device", "cpu")
    done = run("ablate", *small, "--passes", "seq-len-sync", "--html", path, "--out", samples)
    assert done.returncode == 0, done.stderr
    assert done.stderr.decode().endswith(f"page saved as {path}\n")
    assert is_page(path, 2)
    shown = run("view", samples, "--html", tmp_path / "again.html")
    assert shown.returncode == 0
    assert is_page(tmp_path / "again.html", 0)


def test_it_serves_the_page_on_the_loopback_alone_until_it_is_stopped():
    words = command("view", SYNC, "--serve", "--no-open")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV) as server:
        try:
            address = server.stdout.readline().decode().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/", address)
            with urllib.request.urlopen(address, timeout=10) as answer:
                assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
                assert answer.read().startswith(b"<!doctype html>")
            root = re.match(r"http://[^/]*/", address)[0]
            foreign = urllib.request.Request(address, headers={"Host": "evil.example"})
            for request in (root, foreign):
                with pytest.raises(urllib.error.HTTPError, match="404"):
                    urllib.request.urlopen(request, timeout=10)
            server.send_signal(signal.SIGINT)
            assert server.wait(10) == 0
        finally:
            server.kill()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gone.json",), "gone.json: no such file; check the path"),
        ((SYNC, "--html", "page.txt"), "page.txt: give the page the ending .html"),
        (
            (SYNC, "--html", "p.html", "--serve"),
            "--html writes a file, --serve serves the page; give one",
        ),
        ((SYNC, "--port", "80"), "--port is for --serve; give both, or neither"),
        ((SYNC, "--trace", f"none={SYNC}"), "--trace is for an ablation; give a recording as FILE"),
        (
            (SYNC, "--window", "90:99"),
            "--window 90:99: no such steps; the recording has steps 0 to 8",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words: tuple[str | Path, ...], said: str):
    assert refusal(run("view", *words)) == said


def test_a_recording_without_device_work_is_refused(tmp_path: Path):
    path = tmp_path / "host.json"
    call = event("cuda_runtime", "cudaMalloc", 10, 5, correlation=1)
    path.write_text(json.dumps({"traceEvents": [call]}))
    assert refusal(run("view", path)) == refusal(run("diagnose", path))
    assert [p.name for p in tmp_path.iterdir()] == ["host.json"]


def test_a_row_that_is_not_there(tmp_path: Path):
    result = tmp_path / "result.json"
    result.write_bytes(msgspec.json.encode(ablation()))
    said = refusal(run("view", result, "--trace", f"all={SYNC}"))
    assert said.startswith(f"--trace all: no such row in {result}; it has 'none', ")
