"""Files read piece by piece: the same as read whole, wherever a piece ends, in little memory."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubblescope.errors import BubblescopeError
from bubblescope.ingest import kineto, kineto_text, load, source
from bubblescope.timeline import Timeline
from tests.corpus import need
from tests.test_ingest_kineto import health, kernel, span
from tests.test_ingest_repair import EVENTS, FOOT, HEAD, STYLES, document, expected, rows, texts

_TRIES = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def _small_pieces() -> Iterator[None]:
    """Pieces and stretches as small as events, so that they end everywhere."""
    with patch.object(source, "_PIECE", 97), patch.object(kineto_text, "_STRETCH", 150):
        yield


def attempt(path: Path, **options: Any) -> Timeline | str:
    try:
        return load(path, **options)
    except BubblescopeError as error:
        return str(error)


def whole(path: Path, **options: Any) -> Timeline | str:
    """The file read by the road for damaged ones, whole in memory."""
    with patch.object(kineto, "_as_it_comes", lambda source, progress: None):
        return attempt(path, **options)


def by_pieces(path: Path) -> Timeline:
    """The file read piece by piece; an error where that road was left."""
    with patch.object(kineto, "_whole", None):
        return load(path)


def test_every_style_is_read_by_pieces(tmp_path: Path) -> None:
    path = tmp_path / "t"
    foot = json.dumps(FOOT)[1:]
    for style in STYLES:
        for bare in (False, True):
            text = document(texts(style), bare=bare)
            texts_of = [text, f"\ufeff \n{text}\n"] + ([] if bare else [f"{text[:-1]}, {foot}"])
            for content in texts_of:
                path.write_text(content, encoding="utf-8")
                got = by_pieces(path)
                assert rows(got) == expected(EVENTS)
                assert got == whole(path)
                assert not len(got.health)


@_TRIES
@given(st.data())
def test_a_cut_file_is_the_same_by_pieces(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "t"
    text = document(texts(data.draw(st.sampled_from(STYLES))), bare=data.draw(st.booleans()))
    path.write_text(text[: data.draw(st.integers(1, len(text) - 1))])
    got = attempt(path)
    assert got == whole(path)
    assert isinstance(got, str) or by_pieces(path) == got
    assert attempt(path, strict=True) == whole(path, strict=True)


@_TRIES
@given(st.data())
def test_a_damaged_file_is_the_same_by_pieces(tmp_path: Path, data: st.DataObject) -> None:
    """Junk between, brackets lost, numbers that are none, all of them at several places."""
    path = tmp_path / "t"
    text = document(texts(data.draw(st.sampled_from(STYLES)))).encode()
    junk = st.sampled_from(
        [b"", b"\x01", b'"', b"\\", b"}", b"{", b"]", b", ", b"NaN", b"\xff", b":"]
    )
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(20, len(text) - 1))
        text = text[:at] + data.draw(junk) + text[at + data.draw(st.integers(0, 1)) :]
    path.write_bytes(text)
    assert attempt(path) == whole(path)
    assert attempt(path, strict=True) == whole(path, strict=True)


@pytest.mark.parametrize("pack", [gzip.compress, lambda b: pa.compress(b, "zstd", asbytes=True)])
def test_packed_files_are_read_by_pieces(tmp_path: Path, pack: Any) -> None:
    many = [kernel(i, 0.5, f"k{pow(7, i, 10**30 + 57)}", correlation=i) for i in range(3000)]
    packed = pack(document([json.dumps(e) for e in many]).encode())
    path = tmp_path / "t"
    for share in (1.0, 0.99, 0.6, 0.3):
        path.write_bytes(packed[: int(share * len(packed))])
        got = by_pieces(path)
        assert got == whole(path)
        assert (len(got.device_ops) == 3000) == (share == 1.0)


def test_numbers_that_are_none_are_read_by_pieces(tmp_path: Path) -> None:
    events = [*EVENTS[:9], kernel(200, 1, "of NaN, inf]", occupancy="@", x=["@", 1]), *EVENTS[9:]]
    path = tmp_path / "t"
    path.write_text(json.dumps({**HEAD, "traceEvents": events}).replace('"@"', "NaN"))
    got = by_pieces(path)
    assert got == whole(path)
    assert health(got) == {"NaN or Infinity": 2}


def test_where_events_seem_to_begin_inside_of_one(tmp_path: Path) -> None:
    """A cut inside of a name, or of arguments: such a file is read whole."""
    name = 'a"}, {"ph": "X", "name": "b' * 20
    nested = [{"a": 1}, {"name": "x"}] * 20
    events = [span("cpu_op", name, 0, 9), *EVENTS, span("cpu_op", "n", 0, 9, x=nested)]
    path = tmp_path / "t"
    path.write_text(json.dumps({**HEAD, "traceEvents": events}))
    got = load(path)
    assert rows(got) == expected(events)
    assert not len(got.health)
    path.write_text(json.dumps({"traceEvents": EVENTS, "more": nested}))
    assert rows(load(path)) == expected(EVENTS)


def test_a_file_in_which_the_list_is_named_twice(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(json.dumps({"a": {"traceEvents": []}, "traceEvents": EVENTS}))
    got = load(path)
    assert rows(got) == expected(EVENTS)
    assert not len(got.health)


@pytest.mark.parametrize(
    "name",
    ["hta_event_sync", "kineto_2021_resnet_w0", "nanovllm_decode_gpu_0", "tl_mi300_sglang_decode"],
)
def test_recordings_are_the_same_by_pieces(name: str) -> None:
    path = need(f"traces/{name}.json.gz")
    with patch.object(kineto_text, "_STRETCH", 5000):
        assert by_pieces(path) == whole(path)


MEASURE = """
import resource, sys
from pathlib import Path
from bubblescope.ingest import load
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
load(Path(sys.argv[1]))
before = peak()
print(len(load(Path(sys.argv[2])).device_ops), peak() - before)
"""


def test_a_file_is_never_in_memory_whole(tmp_path: Path) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    few.write_text(json.dumps({"traceEvents": EVENTS}))
    flow = json.dumps({"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 1, "cat": "ac2g"})
    event = json.dumps(kernel(1.5, 1.25, "k" * 300, correlation=3))
    with many.open("w") as out:
        out.write(f'{{"traceEvents": [{event}')
        for _ in range(100):
            out.write(f",\n{flow},\n{event}" * 1000)
        out.write("]}")
    words = [sys.executable, "-c", MEASURE, few, many]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    operations, peak = map(int, done.stdout.split())
    assert operations == 100_001
    size = many.stat().st_size
    assert size > 50_000_000
    # The tables and their making: not a quarter of the text.
    assert peak < 0.7 * size
