"""How the doctor's findings are printed."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from bubblescope.doctor import Capture, Check, Examination, State, examine
from bubblescope.report import doctor as report
from tests.doctor_machines import bare, h200

CHECKS = (
    Check("driver", "a", "NVIDIA driver", State.OK, "580.1, CUDA 13.0", version="580.1"),
    Check("cupti", "a", "CUPTI", State.OLD, "13.0", "CUPTI is old", "pip install x"),
    Check("torch", "b", "torch", State.CANNOT, "it " * 40 + "ends", "no torch", "p" * 60),
    Check("ncu", "b", "ncu", State.MISSING, "not found", "not found", "apt-get y", True),
)
FOUND = Examination(
    (
        Capture("one", "programs", False, "CUPTI is old"),
        Capture("two", "more programs", False, "CUPTI is old"),
        Capture("three", "the loop", True),
    ),
    CHECKS,
)
TEXT = """\
can record: the loop; cannot: programs and more programs (CUPTI is old)

NVIDIA driver  ok       580.1, CUDA 13.0
CUPTI          too old  13.0  → pip install x

torch          cannot   it it it it it it it it it it it it it it it it it
                        it it it it it it it it it it it it it it it it it
                        it it it it it it ends
              → pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp
ncu            missing  not found  → apt-get y
"""


def printed(found: Examination, width: int = 76, **settings: object) -> str:
    file = io.StringIO()
    report.render(found, Console(file=file, width=width, **settings))  # type: ignore[arg-type]
    return file.getvalue()


def test_text() -> None:
    assert printed(FOUND) == TEXT


def test_colours_are_only_where_there_may_be_some(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    coloured = printed(FOUND, force_terminal=True, color_system="truecolor")
    assert "\x1b[32mok" in coloured
    assert "\x1b[31mcannot" in coloured
    assert "\x1b[33mtoo old" in coloured
    assert "\x1b[2mmissing" in coloured  # optional: nothing to worry about
    monkeypatch.setenv("NO_COLOR", "1")
    plain = printed(FOUND, force_terminal=True, color_system="truecolor")
    assert "\x1b[3" not in plain


@pytest.mark.parametrize("width", [20, 40, 60, 100, 200])
def test_no_line_is_too_long_and_nothing_is_lost(width: int, tmp_path: Path) -> None:
    for found in (examine(bare(tmp_path)), examine(h200(tmp_path)), FOUND):
        text = printed(found, width)
        lines = text.splitlines()
        assert max(map(len, lines)) <= max(width, 24)
        if width >= 60:
            for check in found.checks:
                for word in (*check.found.split(), *check.do.split()):
                    assert word in text or len(word) > 30


def test_one_screen(tmp_path: Path) -> None:
    for machine in (bare(tmp_path), h200(tmp_path)):
        assert len(printed(examine(machine), 100).splitlines()) <= 40


def test_a_command_that_fits_a_line_is_not_broken(tmp_path: Path) -> None:
    found = examine(bare(tmp_path))
    text = printed(found, 100)
    for check in found.checks:
        assert check.do in text


def test_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    report.render(FOUND, Console(file=file, width=76))
    file.seek(0)
    assert "13.0  -> pip install x" in file.read()


def test_what_comes_from_outside_cannot_move_the_cursor() -> None:
    wild = Check("x", "a", "x", State.CANNOT, "a\x1b[2Jb\nc", "w\x1b", "d\x1b]8;;")
    found = Examination((Capture("one", "one", False, "w\x1b"),), (wild,))
    assert "\x1b" not in printed(found)
    assert "\\u001b" not in report.to_json(found).decode()


def test_json() -> None:
    text = report.to_json(FOUND)
    assert text.endswith(b"}\n")
    told = json.loads(text)
    assert msgspec.json.decode(text, type=report.DoctorJson).version == told["version"] == 1
    assert told["conclusion"] == TEXT.splitlines()[0]
    assert told["captures"][0] == {
        "name": "one",
        "title": "programs",
        "can": False,
        "why": "CUPTI is old",
    }
    assert told["checks"][1] == {
        "name": "cupti",
        "group": "a",
        "title": "CUPTI",
        "state": "too old",
        "found": "13.0",
        "do": "pip install x",
        "optional": False,
        "version": "",
        "path": "",
    }
