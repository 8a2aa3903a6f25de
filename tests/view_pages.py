"""Pages of recordings with known truth, as files to open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bubblescope.cli.shown import shown
from bubblescope.compare import compare
from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
from bubblescope.report import as_json
from bubblescope.timeline import Timeline
from bubblescope.view import Shown, comparison_page, diagnosis_page
from tests.loops import run

TRACES = Path(__file__).parents[1] / "traces"
Window = tuple[int, int]


def of(timeline: Timeline, window: Window | None = None, label: str = "") -> Shown:
    return shown(timeline, diagnose(timeline, window=window), label)


def of_file(name: str, window: Window | None = None) -> Shown:
    return of(load(TRACES / f"{name}.bscope"), window, f"{name}.bscope")


def report(made: Shown) -> dict[str, Any]:
    """What `diagnose --json` prints of it."""
    return json.loads(as_json.to_json(made.diagnosis, made.passes))


def write(made: Shown, folder: Path, name: str = "page") -> str:
    """The address of its page."""
    path = folder / f"{name}.html"
    path.write_bytes(diagnosis_page(made))
    return path.as_uri()


def write_both(a: Shown, b: Shown, folder: Path) -> str:
    path = folder / "both.html"
    found = compare(run(a.timeline), run(b.timeline))
    path.write_bytes(comparison_page(a, b, found))
    return path.as_uri()
