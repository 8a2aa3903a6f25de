"""`bubblescope diagnose A B`, and a folder: the ranks of one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.program import decode_loop, event, listing, refusal, report, run


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Rank 0 runs six steps of `decode_loop`, rank 1 four: each a file of its own."""
    paths = []
    for rank, steps in enumerate((6, 4)):
        path = tmp_path / f"rank{rank}.json"
        head = {
            "distributedInfo": {"rank": rank, "world_size": 2},
            "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        }
        path.write_text(json.dumps(head | {"traceEvents": decode_loop(steps)}))
        paths.append(path)
    return paths


def test_figures_are_sums_over_ranks(two: list[Path]) -> None:
    told = report(*two)
    assert [(d["rank"], d["window_ns"]) for d in told["devices"]] == [(0, 560_000), (1, 360_000)]
    alone = [report(path) for path in two]
    for key in ("window_ns", "busy_ns", "idle_ns", "operations"):
        assert told[key] == alone[0][key] + alone[1][key]
    for part, ns in told["parts_ns"].items():
        assert ns == alone[0]["parts_ns"][part] + alone[1]["parts_ns"][part]
    (read,) = told["reads"]
    assert (read["calls"], read["exposed_idle_ns"]) == (6 + 4, (5 + 3) * 35_000)


def test_text_names_the_ranks(two: list[Path]) -> None:
    done = run(*two)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.startswith("rank0.json, rank1.json\n")
    assert "ranks 0, 1 of 2" in text


def test_one_rank_of_them(two: list[Path]) -> None:
    told, alone = report(*two, "--rank", "1"), report(two[1])
    for key in ("window_ns", "busy_ns", "idle_ns", "parts_ns", "reads", "steps"):
        assert told[key] == alone[key]
    assert [d["rank"] for d in told["devices"]] == [1]
    message = refusal(run(*two, "--rank", "2"))
    assert message == "--rank 2: no such rank; the recording has 0, 1"
    assert "is not a valid integer" in refusal(run(*two, "--rank", "one"))


def test_a_folder(two: list[Path]) -> None:
    folder = two[0].parent
    before = listing(folder)
    assert report(folder)["devices"] == report(*two)["devices"]
    assert run(folder).stdout.decode().startswith(f"{folder.name}\n")
    assert listing(folder) == before


def test_what_else_is_in_the_folder_is_noted(two: list[Path]) -> None:
    folder = two[0].parent
    (folder / "run.log").write_text("started\n")
    cpu = [event("cpu_op", "aten::mm", 0, 1)]
    (folder / "host.json").write_text(json.dumps(cpu))
    told = report(folder)
    (note,) = told["health"]
    assert (note["kind"], note["count"]) == ("not read", 2)
    assert "host.json" in note["note"]
    assert "run.log not a trace" in note["note"]
    text = " ".join(run(folder).stdout.decode().split())
    assert "2 files are left out: host.json CPU-only trace" in text
    assert told["window_ns"] == report(*two)["window_ns"]


def test_nothing_in_the_folder_can_be_read(tmp_path: Path) -> None:
    assert "is a folder without files" in refusal(run(tmp_path))
    (tmp_path / "a.log").write_text("started\n")
    (tmp_path / "b.json").write_text("")
    message = refusal(run(tmp_path))
    assert message.startswith(f"{tmp_path}: no recording among its 2 files; the first, a.log not")


def test_a_file_that_cannot_be_read_among_those_named(two: list[Path]) -> None:
    missing = two[0].with_name("rank2.json")
    assert refusal(run(*two, missing)) == f"{missing}: no such file; check the path"


def test_saved_as_one_recording(two: list[Path]) -> None:
    saved = two[0].with_name("both.bscope")
    told = report(*two)
    done = run(*two, "--json", "-o", saved)
    assert done.returncode == 0
    assert json.loads(done.stdout) == told
    assert report(saved)["devices"] == told["devices"]
    assert report(saved, "--rank", "0")["window_ns"] == 560_000
    for path in two:
        link = path.with_suffix(".bscope")
        link.hardlink_to(path)
        assert "is the recording itself" in refusal(run(*two, "-o", link, "--force"))
