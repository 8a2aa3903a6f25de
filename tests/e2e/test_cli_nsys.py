"""Every command that takes a recording takes an Nsight Systems export."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.program import ENV, Result, listing, refusal, report, run
from tests.nsys_export import export, write
from tests.synthetic import TraceBuilder


def loop(read: bool = True) -> TraceBuilder:
    """Six steps, t = 100 us k: kernels [t+20,t+80) us, and a read that waits until t+85, or none.

    Each bubble is [t+80,t+120): read tail 5, host gap 25, launch call 5, latency 5.
    """
    trace = TraceBuilder()
    for k in range(6):
        t = 100_000 * k
        trace.range("annotation", f"decode {k}", at=t, dur=90_000)
        trace.launch("one", at=t + 10_000, dur=5_000, start=t + 20_000, run=30_000)
        trace.launch("two", at=t + 16_000, dur=2_000, start=t + 50_000, run=30_000)
        if read:
            trace.sync(at=t + 20_000, dur=65_000, row="stream")
    return trace


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    return write(tmp_path / "decode.sqlite", export(loop().timeline()))


def command(*words: str | Path, cwd: Path | None = None) -> Result:
    line = [sys.executable, "-m", "bubblescope", *map(str, words)]
    return subprocess.run(line, capture_output=True, timeout=60, check=False, env=ENV, cwd=cwd)


def succeeded(done: Result) -> bytes:
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_diagnose(sqlite: Path) -> None:
    before = listing(sqlite.parent)
    told = report(sqlite)
    assert (told["window_ns"], told["busy_ns"], told["unknown_ns"]) == (560_000, 360_000, 0)
    assert {part: ns for part, ns in told["parts_ns"].items() if ns} == {
        "read tail": 25_000,
        "host gap": 125_000,
        "launch call": 25_000,
        "launch latency": 25_000,
    }
    assert (told["steps"]["count"], told["steps"]["median_ns"]) == (6, 100_000)
    text = succeeded(run(sqlite)).decode()
    assert text.startswith("decode.sqlite\n")
    assert "capture   Nsight Systems" in text
    assert listing(sqlite.parent) == before


def test_a_damaged_export_and_a_report_without_nsys(sqlite: Path) -> None:
    cut = sqlite.with_name("cut.sqlite")
    cut.write_bytes(sqlite.read_bytes()[:-5_000])
    assert refusal(run(cut)).startswith(f"{cut}: cut short: ")
    rep = sqlite.with_name("run.nsys-rep")
    rep.write_bytes(b"NVIDIA Tegra Profiler Report 2025@5@1@121" + bytes(100))
    message = refusal(run(rep, env={"PATH": ""}))
    assert f"nsys export --type sqlite --output {rep.with_suffix('.sqlite')} {rep};" in message


def test_predict(sqlite: Path) -> None:
    told = json.loads(succeeded(command("predict", sqlite, "--without", "read:*", "--json")))
    assert (told["withheld"], told["step_ns"], told["replayed_ns"]) == ("", 100_000, 100_000)
    # What is left is the kernels: launches of the next step come in time behind them.
    assert told["predicted_ns"] == 60_000


def test_predict_of_a_folder(sqlite: Path) -> None:
    assert succeeded(command("predict", sqlite.parent)) == succeeded(command("predict", sqlite))


def test_compare(sqlite: Path) -> None:
    other = write(sqlite.with_name("other.sqlite"), export(loop(read=False).timeline()))
    told = json.loads(succeeded(command("compare", sqlite, other, "--json")))
    assert (told["a"]["capture"], told["b"]["busy_ns"]) == ("Nsight Systems", 360_000)
    gone = "Gone: cudaStreamSynchronize in decode #, 1.0 a step, and the 35 us a step of idle"
    assert any(line.startswith(gone) for line in told["summary"])


def test_check(sqlite: Path) -> None:
    succeeded(command("check", sqlite, "--max-reads", "1", "--max-step", "100us"))
    done = command("check", sqlite, "--max-reads", "0")
    assert done.returncode == 1
    assert b"cudaStreamSynchronize in decode #" in done.stdout


def test_kernels(sqlite: Path) -> None:
    told = json.loads(succeeded(command("kernels", sqlite, "--json")))
    found = {(k["name"], k["calls_per_step"], k["ns_per_step"]) for k in told["kernels"]}
    assert found == {("one", 1.0, 30_000), ("two", 1.0, 30_000)}


def test_view(sqlite: Path) -> None:
    page = sqlite.with_name("page.html")
    succeeded(command("view", sqlite, "--html", page))
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "decode.sqlite" in text


@pytest.mark.parametrize("form", ["chrome", "parquet", "csv"])
def test_export(form: str, sqlite: Path) -> None:
    out = sqlite.with_name("out.json" if form == "chrome" else "out")
    done = command("export", sqlite, "--to", form, "-o", out)
    assert done.returncode == 0
    if form == "chrome":
        again = report(out)
        first = report(sqlite)
        assert again["parts_ns"] == first["parts_ns"]
        assert again["reads"] == first["reads"]
    else:
        assert {p.suffix for p in out.iterdir() if p.stem == "device_ops"} == {f".{form}"}
