"""`bubblescope export` and `--strict` as a user runs them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus import need
from tests.e2e.program import ENV, SYNC, decode_loop, refusal, report, run


def export(*words: str | Path, at: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "bubblescope", "export", *map(str, words)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, env=ENV, cwd=at)


def test_chrome_reads_back_the_same(tmp_path: Path) -> None:
    done = export(SYNC, "--to", "chrome", at=tmp_path)
    name = "ling3-h200-seqlen-sync.chrome.json.gz"
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == f"chrome written to {name}\n"
    assert [p.name for p in tmp_path.iterdir()] == [name]
    before, after = report(SYNC), report(tmp_path / name)
    assert after.pop("source") != before.pop("source")
    assert after == before


@pytest.mark.parametrize("to", ["parquet", "csv"])
def test_tables(tmp_path: Path, to: str, decode: Path) -> None:
    done = export(decode, "--to", to, "-o", "tables", at=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {p.name for p in (tmp_path / "tables").iterdir()}
    assert {f"bubbles.{to}", f"bubble_parts.{to}", f"device_ops.{to}", "meta.json"} <= found


def test_nothing_is_replaced_unasked(tmp_path: Path, decode: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("mine")
    done = export(decode, "--to", "chrome", "-o", path, at=tmp_path)
    assert refusal(done) == f"{path}: exists already; --force replaces it"
    assert path.read_text() == "mine"
    assert export(decode, "--to", "chrome", "-o", path, "--force", at=tmp_path).returncode == 0
    assert json.loads(path.read_text())["traceEvents"]


def test_the_recording_itself_is_never_replaced(tmp_path: Path, decode: Path) -> None:
    before = decode.read_bytes()
    done = export(decode, "--to", "chrome", "-o", decode, "--force", at=tmp_path)
    assert refusal(done) == f"{decode}: is the recording itself; name another file"
    assert decode.read_bytes() == before


def test_bad_words(tmp_path: Path, decode: Path) -> None:
    assert "'xml' is not one of" in refusal(export(decode, "--to", "xml", at=tmp_path))
    assert refusal(export(decode, at=tmp_path)) == (
        "missing option '--to'. Choose from: chrome, parquet, csv; see bubblescope export --help"
    )
    assert "no such file" in refusal(export("none.json", "--to", "csv", at=tmp_path))
    assert list(tmp_path.iterdir()) == [decode]


def test_a_cut_file_is_read_and_says_so_unless_strict(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": decode_loop()}).encode()
    path = tmp_path / "cut.json"
    path.write_bytes(text[: len(text) * 2 // 3])
    done = run(path)
    said = " ".join(done.stdout.decode().split())
    assert done.returncode == 0
    assert f"the file ends in the middle of an event, at byte {len(text) * 2 // 3:,}" in said
    assert "how much is missing is not known" in said
    assert report(path)["health"][0]["kind"] == "cut short"
    line = refusal(run(path, "--strict"))
    assert line.startswith(f"{path}: cut short: the JSON ends in the middle, at byte")
    path.write_bytes(gzip.compress(text)[:-9])
    assert "the JSON in it is whole" in report(path)["health"][0]["note"]
    assert "the gzip data ends early" in refusal(run(path, "--strict"))
    path.write_bytes(text)
    assert run(path, "--strict").returncode == 0


def test_report_of_a_writer_that_was_killed() -> None:
    """REPORTS 28: 6 whole kernels, 7 launches, 5 gaps of 400; the cut is said."""
    found = report(need("reports/28.json"))
    assert found["operations"] == 6
    assert found["busy_ns"] == 600_000
    assert found["window_ns"] == 600_000 + 5 * 400_000
    kinds = {h["kind"]: h["count"] for h in found["health"]}
    assert kinds == {"cut short": 102, "launch without device record": 1}
