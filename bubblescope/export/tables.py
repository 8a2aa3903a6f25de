"""Folders of tables, Parquet or CSV: the recording's, and the diagnosis's beside them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from bubblescope.diagnose.model import Diagnosis, Doing, Part
from bubblescope.errors import BubblescopeError
from bubblescope.paths import is_there
from bubblescope.timeline import Timeline

_Save = Callable[[pa.Table, Path], None]


def check(path: Path, force: bool) -> None:
    """Refuse a path that exists; with `force`, one that is not an export of ours."""
    if not is_there(path):
        return
    if not force:
        raise BubblescopeError(f"{path}: exists already; --force replaces it")
    if not path.is_dir():
        raise BubblescopeError(f"{path}: is a file, and tables need a folder; name another")
    if not (path / "meta.json").is_file() or any(
        p.is_dir() or p.suffix not in (".json", ".parquet", ".csv") for p in path.iterdir()
    ):
        raise BubblescopeError(f"{path}: holds more than an export; name another folder")


def write_parquet(timeline: Timeline, diagnosis: Diagnosis, path: Path, force: bool) -> None:
    """A folder with one Parquet file a table, and meta.json."""

    def save(table: pa.Table, to: Path) -> None:
        pq.write_table(table, to.with_suffix(".parquet"), compression="zstd")

    _write(timeline, diagnosis, path, force, save)


def write_csv(timeline: Timeline, diagnosis: Diagnosis, path: Path, force: bool) -> None:
    """A folder with one CSV file a table, and meta.json."""

    def save(table: pa.Table, to: Path) -> None:
        pc.write_csv(_plain(table), to.with_suffix(".csv"))

    _write(timeline, diagnosis, path, force, save)


def _write(timeline: Timeline, diagnosis: Diagnosis, path: Path, force: bool, save: _Save) -> None:
    """All of it in a folder beside, which takes the name in one step."""
    check(path, force)
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    except OSError as error:
        raise BubblescopeError(f"{path}: cannot write here: {error.strerror}") from None
    try:
        for name, table in tables(timeline, diagnosis).items():
            save(table, made / name)
        (made / "meta.json").write_bytes(msgspec.json.format(msgspec.json.encode(timeline.meta)))
        made.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        made.rename(path)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError):
            raise BubblescopeError(f"{path}: not written: {error.strerror or error}") from None
        raise


def tables(timeline: Timeline, diagnosis: Diagnosis) -> dict[str, pa.Table]:
    """Every table by its name; times in ns, row numbers count from 0, -1 is "not recorded"."""
    found = {name: table.to_arrow() for name, table in timeline.tables().items()}
    return found | {
        "diagnosed_steps": _stacked(diagnosis, _steps),
        "bubbles": _stacked(diagnosis, _bubbles),
        "bubble_parts": _stacked(diagnosis, _pieces),
    }


def _stacked(diagnosis: Diagnosis, of: Callable[[Any], dict[str, Any]]) -> pa.Table:
    """Rows of every device, with its rank and number in front."""
    parts = []
    for device in diagnosis.devices:
        columns = of(device)
        rows = len(columns["start"])
        place = {"rank": np.full(rows, device.rank), "device": np.full(rows, device.device)}
        parts.append(pa.table(place | columns))
    return pa.concat_tables(parts)


def _steps(device: Any) -> dict[str, Any]:
    steps = device.steps
    return {
        "number": steps.number,
        "start": steps.start,
        "end": steps.end,
        "whole": steps.whole,
        "outlier": steps.outlier,
        "busy_ns": steps.busy_ns,
        "overlapped_ns": steps.overlapped_ns,
    } | {f"{part.label.replace(' ', '_')}_ns": steps.parts_ns[:, part] for part in Part}


def _bubbles(device: Any) -> dict[str, Any]:
    bubbles = device.bubbles
    return {
        "start": bubbles.start,
        "end": bubbles.end,
        "ended_by_op": bubbles.op,
        "launch_call": bubbles.launch,
        "step": bubbles.step,
    }


def _pieces(device: Any) -> dict[str, Any]:
    pieces = device.pieces
    part, doing = [p.label for p in Part], [d.label for d in Doing]
    return {
        "bubble": pieces.bubble,
        "start": pieces.start,
        "end": pieces.end,
        "part": pa.array(part).take(pa.array(pieces.part)),
        "doing": pa.array(
            [doing[d] if p == Part.HOST_GAP else "" for p, d in _both(pieces)], pa.string()
        ),
        "call": pieces.call,
        "range": pieces.range,
    }


def _both(pieces: Any) -> zip[tuple[int, int]]:
    return zip(pieces.part.tolist(), pieces.doing.tolist(), strict=True)


def _plain(table: pa.Table) -> pa.Table:
    """Dictionary columns as text: CSV knows no dictionaries."""
    columns = {
        name: column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(columns)
