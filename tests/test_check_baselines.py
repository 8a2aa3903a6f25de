"""Named baselines: where they lie, what they keep, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubblescope.check import baselines
from bubblescope.errors import BubblescopeError
from tests.loops import US, with_read


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(name: str, **how) -> Path:
    asked = {"window": None, "marker": None, "force": False} | how
    return baselines.save(with_read(8).timeline(), name, **asked)


def test_a_name_lies_in_the_folder_of_baselines():
    assert save("main") == Path(".bubblescope/baselines/main.bscope")
    assert baselines.load("main").diagnosis.steps.number.tolist() == list(range(8))


def test_a_path_is_itself():
    assert save("kept.bscope") == Path("kept.bscope")
    assert baselines.load("kept.bscope").timeline.device_ops == with_read(8).timeline().device_ops
    assert not Path(".bubblescope").exists()


def test_it_is_looked_at_as_when_it_was_saved():
    save("main", window=(2, 5))
    assert baselines.load("main", window=(0, 1)).window == (2, 5)
    save("open", window=(6, None))
    assert baselines.load("open").diagnosis.steps.number.tolist() == [6, 7]


def test_a_file_that_says_nothing_is_looked_at_as_asked():
    save("main.bscope")
    assert baselines.load("main.bscope", window=(1, 3)).diagnosis.steps.number.tolist() == [1, 2]


def test_the_marker_is_kept():
    trace = with_read(4)
    for k in range(4):
        trace.range("annotation", f"decode {k}", 100 * k * US, 90 * US)
    baselines.save(trace.timeline(), "main", window=None, marker="decode 0", force=False)
    assert baselines.load("main").diagnosis.marker == "decode 0"


def test_nothing_is_overwritten_unasked():
    save("main")
    before = Path(".bubblescope/baselines/main.bscope").read_bytes()
    with pytest.raises(
        BubblescopeError, match=r"main\.bscope: exists already; --force replaces it"
    ):
        save("main", window=(2, 5))
    assert Path(".bubblescope/baselines/main.bscope").read_bytes() == before
    save("main", window=(2, 5), force=True)
    assert baselines.load("main").window == (2, 5)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x\n", "é"])
def test_names_stay_in_the_folder(name):
    with pytest.raises(BubblescopeError, match="is no name for a baseline"):
        baselines.path_of(name)


def test_what_is_not_there_is_said():
    with pytest.raises(BubblescopeError, match=r"main\.bscope: no such baseline; --save-baseline"):
        baselines.load("main")


def test_a_folder_that_cannot_be_made():
    Path(".bubblescope").write_text("a file")
    with pytest.raises(BubblescopeError, match=r"baselines: cannot be made: "):
        save("main")
