from __future__ import annotations

import bz2
import gc
import gzip
import io
import json
import lzma
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from bubblescope.timeline import bscope
from tests.test_ingest_kineto import health, kernel, launch, read, save, span

# Files -----------------------------------------------------------------------------------------

EVENTS = [launch(1, 1, 1), kernel(2, 1, correlation=1), span("cpu_op", "aten::mm", 0, 3)]


def test_found_by_content_not_by_name(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": EVENTS}).encode()
    same = load(save(tmp_path / "trace.json", EVENTS))
    for name, content in {
        "a.json.gz": text,
        "b.json": gzip.compress(text),
        "c.bscope": gzip.compress(text[:50]) + gzip.compress(text[50:]),
        "d": b"\xef\xbb\xbf" + text,
        "e.sqlite": b" \n\t" + text,
        "f.txt": json.dumps(EVENTS).encode(),
        "g": json.dumps({"traceEvents": EVENTS}, indent=2).encode(),
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        got = load(path)
        assert got.meta.source == name
        assert got.tables() == same.tables()


def test_saved_timeline(tmp_path: Path) -> None:
    timeline = load(save(tmp_path / "trace.json", EVENTS))
    bscope.write(timeline, tmp_path / "saved.json")
    assert load(tmp_path / "saved.json") == timeline


def test_input_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": EVENTS}).encode()))
    path.chmod(0o444)
    before, status = path.read_bytes(), path.stat()
    load(path)
    after = path.stat()
    assert path.read_bytes() == before
    assert (after.st_mtime_ns, after.st_size) == (status.st_mtime_ns, status.st_size)
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json.gz"]


def test_progress_and_collector(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    load(save(tmp_path / "t.json", EVENTS), progress=lambda *news: told.append(news))
    assert [stage for stage, share in told if share == 1.0] == ["read", "build"]
    assert all(0 <= share <= 1 for _, share in told)
    assert gc.isenabled()
    (tmp_path / "bad").write_text("{")
    with pytest.raises(BubblescopeError):
        load(tmp_path / "bad")
    assert gc.isenabled()


def test_what_is_no_event_is_passed_over(tmp_path: Path) -> None:
    odd = [1, None, {}, {"ph": 5}, {"ph": "future"}, {"ph": "X", "name": 5}, {"ph": "M", "args": 1}]
    got = read(tmp_path, EVENTS + odd)
    assert len(got.device_ops) == 1
    assert health(got) == {"odd event": 2}


def test_a_field_of_another_type_costs_no_event(tmp_path: Path) -> None:
    # A kernel that is left out is time that looks idle.
    rows = [kernel(10 * n, 5, f"k{n}", correlation=n) for n in range(1, 6)]
    rows[0]["name"] = None
    rows[1]["args"] = []
    rows[2]["args"] = "none"
    rows[3]["args"]["bytes"] = "HUGE"
    rows[4] |= {"name": "BAD", "args": []}
    text = json.dumps(rows).replace('"HUGE"', "1e999").encode()
    (tmp_path / "t").write_bytes(text.replace(b"BAD", b"\xff\xfe"))
    got = load(tmp_path / "t")
    assert got.device_ops.start.tolist() == [10_000, 20_000, 30_000, 40_000, 50_000]
    assert sorted(got.device_ops.name.to_list()) == ["", "??", "k2", "k3", "k4"]
    assert got.device_ops.correlation.tolist() == [1, -1, -1, 4, -1]
    assert got.device_ops.device.tolist() == [0] * 5
    assert health(got) == {"odd event": 5}


def test_a_name_that_is_no_text_costs_no_event(tmp_path: Path) -> None:
    text = json.dumps([*EVENTS, kernel(5, 1, "BAD"), kernel(7, 1)]).encode()
    (tmp_path / "t").write_bytes(text.replace(b"BAD", b"\xff\xfe"))
    got = load(tmp_path / "t")
    assert got.device_ops.start.tolist() == [2_000, 5_000, 7_000]
    assert got.device_ops.name.to_list() == ["k", "??", "k"]
    assert health(got) == {"mended name": 1}


# Refusals --------------------------------------------------------------------------------------


def refused(path: Path) -> str:
    with pytest.raises(BubblescopeError) as error:
        load(path)
    text = str(error.value)
    assert text.isprintable()
    assert text.startswith(f"{path}: ")
    assert "; " in text  # what to do next
    return text


def zipped(name: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, "[]")
    return made.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty (0 bytes)"),
        (gzip.compress(b""), "nothing in it"),
        (b"hello", "not a trace: it begins with b'hello'"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"SQLite format 3\0....", "SQLite"),
        (b"NVIDIA Tegra Profiler Report 2025", "nsys"),
        (b"{'traceEvents': []}", "not valid JSON"),
        (
            b'{"traceEvents": [{"ph": "X", "cat',
            "cut short: the JSON ends in the middle, at byte 33",
        ),
        (b'{"traceEvents": []} {}', "not valid JSON"),
        (b'{"traceEvents": []}', "0 events"),
        (b"[]", "0 events"),
        (b"[{}]", "1 entry, but no event with a duration"),
        (b"{}", "no traceEvents"),
        (b'{"traceEvents": 5}', "not a trace: Expected `array`"),
        (b'{"a\\n": 1, "b": 2}', "it has no traceEvents, but a\\n, b"),
        (b'{"\xff": 1}', "JSON"),
        (b'{"schema": "1.0.1", "nodes": []}', "execution trace"),
        (b'{"segments": [], "device_traces": [[]]}', "a memory snapshot"),
        (b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "the JSON of rocprofv3"),
        (b"\x80\x04\x95\x00", "Python pickle, as PyTorch writes memory snapshots"),
        (b"<!DOCTYPE html><html>", "a web page"),
        ('{"traceEvents": []}'.encode("utf-16"), "text in UTF-16; convert it: iconv -f UTF-16"),
        (gzip.compress(gzip.compress(b"[]")), "packed twice with gzip"),
        (bz2.compress(b"[]"), "packed with bzip2; unpack it first"),
        (lzma.compress(b"[]"), "packed with xz; unpack it first"),
        (gzip.compress(b"t.json".ljust(257, b"\0") + b"ustar\0"), "a tar archive; unpack it"),
        (zipped("t.json"), "a zip archive that holds t.json: no .bscope file; unzip it"),
        (b"NVR\0\x00", "Nsight Compute report"),
        (b'{"traceEvents": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", "nested too deeply"),
        (b"PK\x03\x04 and no more", "not a whole .bscope file"),
        (gzip.compress(b"[" + os.urandom(9000))[:2000], "gzip data ends early, at byte 2,000"),
        (gzip.compress(b"[1]")[:5], "gzip data ends early, at byte 5"),
        (gzip.compress(b"{}" * 90)[:-6] + b"\0\0\0\0\0\0", "damaged gzip data"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + b"\xff" * 50, "damaged gzip data"),
    ],
)
def test_refused_by_content(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert says in refused(path)


SYNC = span("cuda_runtime", "cudaDeviceSynchronize", 9, 1, correlation=99)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([launch(i, 1, i) for i in range(5)] + [SYNC], "5 launches, no GPU record: the capture"),
        ([launch(1, 1, 1), span("cuda_profiler_range", "k", 1, 1)], "CUPTI metrics"),
        ([SYNC], "1 CUDA call, none of them a launch"),
        (
            [span("cuda_runtime", "hipStreamBeginCapture", 1, 1), launch(3, 1, 1)],
            "1 launch while graphs were captured, no GPU record",
        ),
        ([{"ph": "B", "ts": 1}, {"ph": "E", "ts": 2}], "1 begin and end events"),
        (
            [
                {"ph": "M", "name": "process_name", "args": {"name": "0 CPU HIP API"}},
                {"ph": "X", "name": "hipLaunchKernel", "ts": 1, "dur": 1},
            ],
            "1 uncategorised rows of rocprof: this device's rows are not known to bubblescope",
        ),
        ([span("cpu_op", "aten::mm", 1, 1)], "CPU-only trace: 1 framework op"),
        ([span("mtia_ccp_events", "x", 1, 1), SYNC], "it has 1 mtia_ccp_events rows"),
        ([span("privateuse1_runtime", "Launch", 1, 1)], "rows of a PyTorch extension's device: "),
        ([span("xpu_runtime", "urEnqueueKernelLaunch", 1, 1)], "rows of an Intel GPU: this devi"),
        ([{"ph": "X", "ts": 1, "dur": 1}], "1 uncategorised rows"),
        ([{"ph": "M", "name": "process_name"}], "1 entry, but no event with a duration"),
        ([kernel(5, -1), launch(5, 1, 1)], "none of its 1 device operations has a time"),
    ],
)
def test_refused_without_device_operations(tmp_path: Path, events: Any, says: str) -> None:
    assert says in refused(save(tmp_path / "trace.json", events))


def test_refused_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no such file" in refused(tmp_path / "none.json")
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "none.json")
    assert "no such file" in refused(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path / "pipe")
    assert "cannot be read (File name too long)" in refused(tmp_path / ("n" * 300))
    odd = tmp_path / "new\nline"
    with pytest.raises(BubblescopeError, match=r"new\\nline: no such file") as error:
        load(odd)
    assert "\n" not in str(error.value)

    # The super-user may read anything, so the refusal is played.
    def denied(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    path = save(tmp_path / "mine.json", EVENTS)
    monkeypatch.setattr(Path, "open", denied)
    assert "no permission to read it" in refused(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="the super-user may read anything")
def test_refused_by_permission(tmp_path: Path) -> None:
    path = save(tmp_path / "mine.json", EVENTS)
    path.chmod(0)
    assert "no permission to read it" in refused(path)


# Whatever is thrown at it ----------------------------------------------------------------------

_TEXT = json.dumps(
    {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": [*EVENTS, SYNC]}
).encode()


def survives(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    text = ""
    try:
        load(path)
    except BubblescopeError as error:
        text = str(error)
    assert "\n" not in text


_TRIES = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_TRIES
@given(st.data())
def test_no_damage_is_fatal(tmp_path: Path, data: st.DataObject) -> None:
    text = bytearray(data.draw(st.sampled_from([_TEXT, gzip.compress(_TEXT)])))
    for at in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=3)):
        text[at] = data.draw(st.integers(0, 255))
    survives(tmp_path / "t", bytes(text[: data.draw(st.integers(0, len(text)))]))
    survives(tmp_path / "t", bytes(text))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)
    | st.sampled_from(["X", "M", "kernel", "cuda_runtime", "cuda_sync", "cpu_op", "overhead"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)  # fmt: skip
_FIELDS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]
_ARGS = ["device", "stream", "correlation", "bytes", "cuda_sync_kind", "wait_on_stream"]


@_TRIES
@given(st.data())
def test_no_value_is_fatal(tmp_path: Path, data: st.DataObject) -> None:
    events = json.loads(json.dumps([*EVENTS, SYNC]))
    for event in events:
        for field in data.draw(st.lists(st.sampled_from(_FIELDS), max_size=2)):
            event[field] = data.draw(_json)
        if isinstance(event["args"], dict):
            for field in data.draw(st.lists(st.sampled_from(_ARGS), max_size=2)):
                event["args"][field] = data.draw(_json)
    top = data.draw(
        st.dictionaries(
            st.sampled_from(
                ["distributedInfo", "deviceProperties", "baseTimeNanoseconds", "schemaVersion",
                 "cuda_runtime_version", "hip_runtime_version", "traceName", "with_stack"]
            ),
            _json,
        )
    )  # fmt: skip
    survives(tmp_path / "t", json.dumps({"traceEvents": events, **top}).encode())


@_TRIES
@given(st.data())
def test_no_damage_to_a_saved_timeline_is_fatal(tmp_path: Path, data: st.DataObject) -> None:
    if not (tmp_path / "whole").exists():
        bscope.write(load(save(tmp_path / "t.json", EVENTS)), tmp_path / "whole")
    content = bytearray((tmp_path / "whole").read_bytes())
    for at in data.draw(st.lists(st.integers(4, len(content) - 1), min_size=1, max_size=3)):
        content[at] = data.draw(st.integers(0, 255))
    survives(tmp_path / "t", bytes(content))


def test_a_zip_of_something_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t", "w") as archive:
        archive.writestr("meta.json", "{}")
    assert "not a whole .bscope file" in refused(tmp_path / "t")
