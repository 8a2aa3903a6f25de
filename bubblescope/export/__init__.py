"""Timeline and Diagnosis -> files that other tools open. One module a format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bubblescope.diagnose.model import Diagnosis
from bubblescope.export import chrome, tables
from bubblescope.timeline import Timeline

__all__ = ["FORMATS", "Exporter"]

Write = Callable[[Timeline, Diagnosis, Path, bool], None]
"""Writes to a path, whole or not at all; over what is there only with the last argument."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """One format to export to.

    ending: what the default name ends in. check: refuses a path before any work is done for it.
    """

    ending: str
    check: Callable[[Path, bool], None]
    write: Write


FORMATS: dict[str, Exporter] = {
    "chrome": Exporter(".chrome.json.gz", chrome.check, chrome.write),
    "parquet": Exporter(".parquet", tables.check, tables.write_parquet),
    "csv": Exporter(".csv", tables.check, tables.write_csv),
}
"""By the name that `bubblescope export --to` takes."""
