"""The .bscope file: one zip of Parquet tables and a meta.json, written whole or not at all."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import IO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from bubblescope.errors import BubblescopeError
from bubblescope.timeline.meta import Meta
from bubblescope.timeline.tables import (
    DeviceOps,
    Frames,
    Health,
    HostCalls,
    Ranges,
    Steps,
    Table,
)
from bubblescope.timeline.timeline import Timeline
from bubblescope.whole import refuse_existing, written

__all__ = ["TABLES", "VERSION", "read", "refuse_existing", "write"]

VERSION = 1
TABLES: dict[str, type[Table]] = {
    "device_ops": DeviceOps,
    "host_calls": HostCalls,
    "ranges": Ranges,
    "frames": Frames,
    "steps": Steps,
    "health": Health,
}


class _Version(msgspec.Struct):
    """What every version of meta.json begins with."""

    bscope_version: int


class _Head(_Version):
    """meta.json: the file's version beside the Timeline's meta."""

    meta: Meta


def write(timeline: Timeline, path: Path, *, force: bool = False) -> None:
    """Write `timeline` to `path`, whole or not at all; over a file only with `force`."""
    refuse_existing(path, force=force)
    with written(path) as out:
        _write_zip(timeline, out)


def _write_zip(timeline: Timeline, out: IO[bytes]) -> None:
    # Parquet compresses its own pages, so the zip only stores.
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        head = _Head(VERSION, timeline.meta)
        archive.writestr("meta.json", msgspec.json.format(msgspec.json.encode(head)))
        for name, table in timeline.tables().items():
            sink = io.BytesIO()
            pq.write_table(table.to_arrow(), sink, compression="zstd")
            archive.writestr(f"{name}.parquet", sink.getbuffer())


def read(path: Path) -> Timeline:
    """The Timeline in a .bscope file."""
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read("meta.json")
            written = msgspec.json.decode(text, type=_Version).bscope_version
            if written > VERSION:
                raise BubblescopeError(
                    f"{path}: written by a newer bubblescope (format {written}, "
                    f"this one reads {VERSION}); upgrade bubblescope"
                )
            head = msgspec.json.decode(text, type=_Head)
            tables = {
                name: kind.from_arrow(pq.read_table(io.BytesIO(archive.read(f"{name}.parquet"))))
                for name, kind in TABLES.items()
            }
    except (
        zipfile.BadZipFile,
        KeyError,
        pa.ArrowException,
        msgspec.MsgspecError,
        ValueError,
    ) as error:
        raise BubblescopeError(
            f"{path}: not a whole .bscope file ({error}); record or convert it again"
        ) from None
    return Timeline.of(head.meta, **tables)
