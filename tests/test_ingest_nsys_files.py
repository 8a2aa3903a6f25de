"""Files of Nsight Systems: opened without a trace of it, refused in one line, exported by nsys."""

from __future__ import annotations

import gzip
import os
import random
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from tests.nsys_export import KERNEL, RUNTIME, Tables, export, write
from tests.synthetic import TraceBuilder


def some() -> Tables:
    trace = TraceBuilder().range("annotation", "step", at=0, dur=90)
    trace.launch("k", at=10, dur=5, start=20, run=30).launch("k", at=30, dur=5, start=60, run=30)
    return export(trace.timeline())


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(BubblescopeError) as error:
        load(path, **options)
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert text.isprintable()
    assert "; " in text
    return text


def listing(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}


# Read without a trace --------------------------------------------------------------------------


def wal(path: Path) -> Callable[[], None]:
    """Half of the kernels are in the write-ahead log, as where the writer has it still open."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    row = db.execute(f"SELECT * FROM {KERNEL} WHERE start = 20").fetchone()
    start, end = row[0] + 1_000, row[1] + 1_000
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {KERNEL} VALUES ({marks})", (start, end, *row[2:]))
    db.commit()
    return db.close


def test_a_file_is_left_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", some())
    path.chmod(0o444)
    before = listing(tmp_path)
    assert len(load(path).device_ops) == 2
    assert listing(tmp_path) == before


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    path = write(folder / "a.sqlite", some())
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert len(load(path).device_ops) == 2
        assert [p.name for p in folder.iterdir()] == ["a.sqlite"]
    finally:
        folder.chmod(0o755)


def test_a_log_that_is_not_played_in_yet(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", some())
    close = wal(path)
    before = listing(tmp_path)
    assert set(before) == {"a.sqlite", "a.sqlite-wal", "a.sqlite-shm"}
    assert load(path).device_ops.start.tolist() == [20, 60, 1_020]
    assert listing(tmp_path) == before
    close()


def test_a_database_left_in_log_mode(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", some())
    wal(path)()  # the last one to close it plays the log in, and leaves the mode
    assert path.read_bytes()[18:20] == b"\2\2"
    assert load(path).device_ops.start.tolist() == [20, 60, 1_020]
    assert [p.name for p in tmp_path.iterdir()] == ["a.sqlite"]


def test_a_write_that_was_cut_off(tmp_path: Path) -> None:
    """A hot rollback journal: what it undoes is not read, and it is not played in either."""
    path = write(tmp_path / "a.sqlite", some())
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA cache_size = 1")
        db.execute("PRAGMA cache_spill = 1")
        db.execute("BEGIN")
        db.execute(f"UPDATE {KERNEL} SET start = start + 5")
        db.execute("CREATE TABLE filler (x)")
        db.executemany("INSERT INTO filler VALUES (?)", [("x" * 3_000,)] * 60)  # spills
        (tmp_path / "cut").mkdir()
        for name in ("a.sqlite", "a.sqlite-journal"):
            (tmp_path / "cut" / name).write_bytes((tmp_path / name).read_bytes())
        db.execute("ROLLBACK")
    cut = tmp_path / "cut"
    before = listing(cut)
    assert len(before["a.sqlite"][0]) > path.stat().st_size
    assert load(cut / "a.sqlite").device_ops.start.tolist() == [20, 60]
    assert listing(cut) == before


@pytest.mark.parametrize("name", ["a b.sqlite", "50%.db", "what?.sqlite", "a#b", "é.json", "a;b&c"])
def test_any_file_name(name: str, tmp_path: Path) -> None:
    timeline = load(write(tmp_path / name, some()))
    assert (timeline.meta.source, len(timeline.device_ops)) == (name, 2)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_packed_file(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.sqlite", some())
    packed = tmp_path / "a.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert load(packed).tables() == load(plain).tables()
    packed.write_bytes(packed.read_bytes()[:-300])
    assert "cut short" in refusal(packed)


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", some())
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE StringIds SET value = CAST(x'6bff' AS TEXT) WHERE value = 'k'")
        db.commit()
    assert load(path).device_ops.name.to_list() == ["k\ufffd"] * 2


# Refused ---------------------------------------------------------------------------------------


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", some())
    whole = path.read_bytes()
    for length in (99, *range(1_024, len(whole), 1_024)):
        path.write_bytes(whole[:length])
        text = refusal(path)
        assert f"cut short: {length:,} of {len(whole):,} bytes" in text


def test_a_file_with_a_page_of_nonsense(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", some())
    whole = bytearray(path.read_bytes())
    whole[4096:] = b"\xa5" * (len(whole) - 4096)
    path.write_bytes(whole)
    assert "damaged SQLite file" in refusal(path)


def test_no_damage_leads_to_anything_but_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", some())
    whole = path.read_bytes()
    refused: list[str] = []
    for seed in range(300):
        dice = random.Random(seed)
        damaged = bytearray(whole)
        for _ in range(dice.choice([1, 2, 8, 40])):  # half of them where the tables are described
            damaged[dice.randrange(16, dice.choice([4096, len(whole)]))] = dice.randrange(256)
        path.write_bytes(damaged)
        try:
            diagnose(load(path))
        except BubblescopeError as error:
            refused.append(str(error))
    assert 50 < len(refused) < 250
    assert all(text.isprintable() for text in refused)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"people": [{"id": 1}], "places": [{"id": 1}]}, "no Nsight Systems export: it has people"),
        ({"CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": [{"a": 1}]}, "a database of nvprof or the Visu"),
        ({"StringIds": [{"id": 1, "value": "a"}]}, "recorded without the CUDA trace: 0 NVTX even"),
    ],
)
def test_other_databases(tables: Tables, words: str, tmp_path: Path) -> None:
    assert words in refusal(write(tmp_path / "a.sqlite", tables))


def test_a_database_without_a_table(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {"people": []})
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE people")
    assert "no Nsight Systems export: it has no table" in refusal(path)


def test_a_capture_that_lost_the_gpu_side(tmp_path: Path) -> None:
    tables = some()
    del tables[KERNEL]
    text = refusal(write(tmp_path / "a.sqlite", tables))
    assert "2 launches, no GPU record: the capture lost the GPU side" in text
    assert "idle" not in text
    tables["StringIds"] = [
        row | {"value": row["value"].replace("LaunchKernel", "GetDevice")}
        for row in tables["StringIds"]
    ]
    text = refusal(write(tmp_path / "b.sqlite", tables))
    assert "2 CUDA calls, none of them a launch, no GPU record" in text
    del tables[RUNTIME]
    text = refusal(write(tmp_path / "c.sqlite", tables))
    assert "recorded without the CUDA trace: 1 NVTX event," in text


# .nsys-rep -------------------------------------------------------------------------------------

HEAD = b"NVIDIA Tegra Profiler Report 2025@5@1@121-255136380782v0" + bytes(900)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report, and an empty folder as the PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    path = tmp_path / "my run.nsys-rep"
    path.write_bytes(HEAD)
    return path


def nsys(report: Path, script: str) -> None:
    """Put a program called nsys on the PATH; $6 is the output file, $7 the report."""
    program = report.parent / "bin/nsys"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_report_without_nsys(report: Path) -> None:
    text = refusal(report)
    assert "is an Nsight Systems report of version 2025.5.1, and nsys" in text
    target = report.with_suffix(".sqlite")
    assert f"run: nsys export --type sqlite --output '{target}' '{report}'; then" in text


@pytest.mark.skipif(os.name != "posix", reason="the program is a shell script")
def test_a_report_is_exported_by_nsys(report: Path) -> None:
    ready = write(report.parent / "ready.sqlite", some())
    told = report.parent / "told"
    nsys(report, f'/bin/cp "{ready}" "$7"; echo "$*" > "{told}"; echo Processing...')
    before = listing(report.parent / "bin")
    stages: list[str] = []
    timeline = load(report, progress=lambda stage, share: stages.append(stage))
    assert timeline.meta.source == "my run.nsys-rep"
    assert timeline.tables() == load(ready).tables()
    assert stages[0] == "nsys export"
    words = told.read_text().split(" --output ")
    assert words[0] == "export --type sqlite --force-overwrite true"
    exported, _, given = words[1].partition(".sqlite ")
    assert given.strip() == str(report)
    assert not Path(exported + ".sqlite").parent.exists()  # it was temporary
    assert listing(report.parent / "bin") == before
    assert report.read_bytes() == HEAD


@pytest.mark.skipif(os.name != "posix", reason="the program is a shell script")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo working; echo 'FATAL: no such version' >&2; exit 3", "FATAL: no such version"),
        ("exit 1", "it said nothing"),
        ("echo 'done'", "nsys could not export it of version 2025.5.1: done"),
    ],
)
def test_nsys_that_fails(script: str, words: str, report: Path) -> None:
    nsys(report, script)
    text = refusal(report)
    assert words in text
    assert "with a newer nsys" in text
