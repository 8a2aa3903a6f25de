"""The .bscope file: read back equal, open to any Parquet reader, whole or not there at all."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from bubblescope.timeline import (
    Device,
    DeviceOps,
    Frames,
    Health,
    HostCalls,
    Meta,
    Ranges,
    Steps,
    Table,
    ThreadName,
    Timeline,
    bscope,
)

TRACES = Path(__file__).parents[1] / "traces"
SHIPPED = ["ling3-h200-seqlen-sync.bscope", "ling3-h200-no-sync.bscope"]
TABLES: dict[str, type[Table]] = {
    "device_ops": DeviceOps,
    "host_calls": HostCalls,
    "ranges": Ranges,
    "frames": Frames,
    "steps": Steps,
    "health": Health,
}

few = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# Timelines -------------------------------------------------------------------------------------

INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), -1, 0, 2**63 - 1])
TEXT = st.text(max_size=8) | st.sampled_from(["", "名前", "a\x00\n", "\U0001f600"])


@st.composite
def tables(draw: st.DrawFn, kind: type[Table]) -> Table:
    rows = draw(st.integers(0, 4))
    coded = kind.coded_columns()
    return kind.build(
        rows,
        **{
            f.name: draw(st.lists(TEXT if f.name in coded else INT64, min_size=rows, max_size=rows))
            for f in fields(kind)
        },
    )


METAS = st.builds(
    Meta,
    source=TEXT,
    format=TEXT,
    capture=TEXT,
    level=TEXT,
    base_ns=INT64,
    devices=st.lists(st.builds(Device, rank=INT64, index=INT64, name=TEXT, memory=INT64)).map(
        tuple
    ),
    threads=st.lists(st.builds(ThreadName, INT64, INT64, INT64, TEXT), max_size=2).map(tuple),
    versions=st.dictionaries(TEXT, TEXT, max_size=2),
    world_size=st.integers(0, 2**63 - 1),
    unprofiled_step_ns=st.none() | INT64,
    about=st.dictionaries(TEXT, TEXT, max_size=2),
)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    drawn = {name: draw(tables(kind)) for name, kind in TABLES.items()}
    return Timeline.of(draw(METAS), **drawn)


def small() -> Timeline:
    return Timeline.of(
        Meta("small.json", "by hand"),
        device_ops=DeviceOps.build(
            start=[1, 5], end=[3, 9], name=["k", "名"], rank=0, node=[-1, 4]
        ),
        host_calls=HostCalls.build(start=[0], end=[1], name=["cudaLaunchKernel"], rank=0),
        frames=Frames.build(file=["a.py"], line=[3], function=["f"]),
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "small.bscope"
    bscope.write(small(), path)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(path: Path, content: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def listing(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


# Round trip ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_recording_reads_back_equal(name: str, tmp_path: Path) -> None:
    timeline = load(TRACES / name)
    bscope.write(timeline, tmp_path / "again.bscope")
    again = load(tmp_path / "again.bscope")
    assert again == timeline
    assert len(again.device_ops) > 10_000  # equal, and not for being empty


@few
@given(timelines())
def test_any_timeline_reads_back_equal(tmp_path: Path, timeline: Timeline) -> None:
    path = tmp_path / "drawn.bscope"
    bscope.write(timeline, path, force=True)
    again = load(path)
    assert again.meta == timeline.meta
    for name, table in timeline.tables().items():
        assert again.tables()[name] == table, name
    assert [p.name for p in tmp_path.iterdir()] == ["drawn.bscope"]


def test_unequal_timelines_are_told_apart(saved: Path) -> None:
    # The tests above would pass with an equality that is always true.
    ops = DeviceOps.build(start=[1, 5], end=[3, 8], name=["k", "名"], rank=0, node=[-1, 4])
    assert load(saved) != Timeline.of(small().meta, **(small().tables() | {"device_ops": ops}))
    assert load(saved) != Timeline.of(Meta("other", "by hand"), **small().tables())


def test_an_empty_timeline(tmp_path: Path) -> None:
    empty = Timeline.of(Meta("nothing", "by hand"))
    bscope.write(empty, tmp_path / "empty.bscope")
    assert load(tmp_path / "empty.bscope") == empty


def test_any_parquet_reader_opens_it() -> None:
    content = members(TRACES / SHIPPED[0])
    assert set(content) == {"meta.json", *(f"{name}.parquet" for name in TABLES)}
    timeline = load(TRACES / SHIPPED[0])
    for name, kind in TABLES.items():
        table = pq.read_table(io.BytesIO(content[f"{name}.parquet"]))
        mine = timeline.tables()[name]
        known = [f.name for f in fields(kind)]
        # The shipped file is older than the columns that were added last.
        assert table.column_names == known[: len(table.column_names)]
        assert table.num_rows == len(mine)
        for column in table.column_names:
            if column in kind.coded_columns():
                assert table[column].type.value_type == pa.string()
                assert table[column].to_pylist() == getattr(mine, column).to_list()
            else:
                assert table[column].type == pa.int64()
                assert np.array_equal(table[column].to_numpy(), getattr(mine, column))
    head = json.loads(content["meta.json"])
    assert head["bscope_version"] == 1
    assert head["meta"]["devices"][0]["name"] == "NVIDIA H200"


# Whole or not at all ---------------------------------------------------------------------------


def half_then(error: BaseException) -> Callable[[Timeline, IO[bytes]], None]:
    def write(timeline: Timeline, out: IO[bytes]) -> None:
        out.write(b"PK\x03\x04 half of a file")
        out.flush()
        raise error

    return write


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt(), MemoryError()], ids=repr)
@pytest.mark.parametrize("before", [{}, {"a.bscope": b"what was there"}], ids=["new", "replaced"])
def test_a_write_that_fails_leaves_everything_as_it_was(
    error: BaseException, before: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(bscope, "_write_zip", half_then(error))
    raised = BubblescopeError if isinstance(error, OSError) else type(error)
    with pytest.raises(raised) as caught:
        bscope.write(small(), tmp_path / "a.bscope", force=True)
    assert listing(tmp_path) == before
    if isinstance(error, OSError):
        assert "a.bscope: not written: No space left on device" in str(caught.value)


def test_no_reader_sees_half_of_it(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()
    real = bscope._write_zip

    def look_meanwhile(timeline: Timeline, out: IO[bytes]) -> None:
        real(timeline, out)
        out.flush()
        assert saved.read_bytes() == before

    monkeypatch.setattr(bscope, "_write_zip", look_meanwhile)
    other = Timeline.of(Meta("other", "by hand"))
    bscope.write(other, saved, force=True)
    assert load(saved) == other


def test_an_existing_file_is_replaced_only_with_force(saved: Path) -> None:
    before = saved.read_bytes()
    other = Timeline.of(Meta("other", "by hand"))
    with pytest.raises(BubblescopeError, match=r"exists already; --force replaces it$"):
        bscope.write(other, saved)
    assert saved.read_bytes() == before
    bscope.write(other, saved, force=True)
    assert load(saved) == other
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_never_replaced(force: bool, tmp_path: Path) -> None:
    (tmp_path / "f.bscope").mkdir()
    with pytest.raises(BubblescopeError, match="is a folder"):
        bscope.write(small(), tmp_path / "f.bscope", force=force)
    assert [p.name for p in tmp_path.iterdir()] == ["f.bscope"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BubblescopeError, match="cannot write here: No such file or directory"):
        bscope.write(small(), tmp_path / "no" / "a.bscope")


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_mode_is_what_the_umask_leaves(mask: int, mode: int, tmp_path: Path) -> None:
    os.umask(mask)
    bscope.write(small(), tmp_path / "a.bscope")
    assert stat.S_IMODE((tmp_path / "a.bscope").stat().st_mode) == mode
    assert os.umask(mask) == mask  # left as it was


# What cannot be read ---------------------------------------------------------------------------


def refused(path: Path) -> str:
    with pytest.raises(BubblescopeError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert len(message.splitlines()) == 1
    return message


def changed_head(content: dict[str, bytes], **changed: Any) -> dict[str, bytes]:
    head = json.loads(content["meta.json"]) | changed
    return content | {"meta.json": json.dumps(head).encode()}


def test_a_newer_version_is_refused(saved: Path) -> None:
    zipped(saved, changed_head(members(saved), bscope_version=2))
    message = refused(saved)
    assert "newer bubblescope" in message
    assert "upgrade" in message


def test_a_newer_version_is_refused_whatever_else_it_holds(saved: Path) -> None:
    # Its meta and its tables may differ; that it is newer is what the reader must be told.
    zipped(saved, {"meta.json": json.dumps({"bscope_version": 2, "meta": {"new": 1}}).encode()})
    assert "newer bubblescope" in refused(saved)


def test_what_a_later_version_adds_is_passed_over(saved: Path) -> None:
    content = members(saved)
    table = pq.read_table(io.BytesIO(content["device_ops.parquet"]))
    content["device_ops.parquet"] = parquet(table.append_column("power", pa.array([1, 2])))
    zipped(saved, changed_head(content, more=1) | {"notes.txt": b"hello"})
    assert load(saved) == small()


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def test_a_missing_column_is_not_recorded(saved: Path) -> None:
    content = members(saved)
    table = pq.read_table(io.BytesIO(content["device_ops.parquet"]))
    content["device_ops.parquet"] = parquet(table.drop_columns(["node", "bytes", "name"]))
    ops = load(zipped(saved, content)).device_ops
    assert ops.node.tolist() == [-1, -1]
    assert ops.bytes.tolist() == [-1, -1]
    assert ops.name.to_list() == ["", ""]
    assert ops.start.tolist() == [1, 5]  # the others are untouched


@pytest.mark.parametrize("missing", ["meta.json", "device_ops.parquet", "health.parquet"])
def test_a_missing_member(missing: str, saved: Path) -> None:
    content = members(saved)
    del content[missing]
    assert missing in refused(zipped(saved, content))


def test_another_zip(saved: Path) -> None:
    refused(zipped(saved, {"word/document.xml": b"<xml/>"}))


@few
@given(st.floats(0, 1, exclude_max=True))
def test_cut_short(saved: Path, share: float) -> None:
    whole = saved.read_bytes()
    cut = saved.with_name("cut.bscope")
    cut.write_bytes(whole[: int(share * len(whole))])
    refused(cut)


@settings(few, max_examples=100)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_a_byte_that_changed_is_noticed_or_does_not_matter(
    saved: Path, share: float, flip: int
) -> None:
    content = bytearray(saved.read_bytes())
    content[int(share * len(content))] ^= flip
    damaged = saved.with_name("damaged.bscope")
    damaged.write_bytes(content)
    with contextlib.suppress(BubblescopeError):
        assert load(damaged) == small()  # a date, say
