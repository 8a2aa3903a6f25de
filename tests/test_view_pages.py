"""What the page of a recording carries, read back as the page's scripts read it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html import escape, unescape
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubblescope.errors import BubblescopeError
from bubblescope.view import ablation_page, diagnosis_page, html, kept
from bubblescope.view.columns import Column, Packed
from bubblescope.view.recording import encode
from tests import view_pages
from tests.loops import with_read
from tests.synthetic import TraceBuilder
from tests.view_ablation import ablation
from tests.view_columns import unpack

US = 1_000


class Read:
    """A packed recording."""

    def __init__(self, packed: bytes) -> None:
        raw = zlib.decompress(packed)
        length = int.from_bytes(raw[:4], "little")
        self.head: dict[str, Any] = json.loads(raw[4 : 4 + length])
        columns = {name: Column(**column) for name, column in self.head["columns"].items()}
        self._packed = Packed(columns, raw[4 + length :])

    def __getitem__(self, name: str) -> list[int]:
        return unpack(self._packed, name).tolist()


@pytest.fixture(scope="module")
def loop() -> Read:
    return Read(encode(view_pages.of(with_read(3).timeline(), label="loop")))


def test_operations_calls_and_reads(loop: Read):
    # The page's zero is the first kernel's beginning, at 20 us.
    assert loop["op.start"] == [0, 100 * US, 200 * US]
    assert loop["op.length"] == [60 * US] * 3
    assert loop["call.start"] == [(100 * k + at) * US for k in range(3) for at in (-10, 0)]
    assert loop["op.launch"] == [0, 2, 4]
    assert loop["read.call"] == [1, 3, 5]
    assert loop["read.length"] == [65 * US] * 3
    assert loop["read.exposed"] == [35 * US, 35 * US, 0]
    assert loop.head["zero"] == str(20 * US)
    assert loop.head["names"]["op"] == ["void gemm<4>(int)"]


def test_bubbles_pieces_and_charges(loop: Read):
    assert loop["bubble.op"] == [1, 2]
    assert loop["bubble.earlier"] == [0, 0]  # each began where the kernel before it ended
    parts = [loop.head["parts"][p] for p in loop["piece.part"]]
    assert parts == ["read tail", "host gap", "launch call", "launch latency"] * 2
    assert loop["piece.left"] == [35 * US, 10 * US, 5 * US, 0] * 2
    charged = zip(loop["charge.bubble"], loop["charge.read"], loop["charge.ns"], strict=True)
    sums: dict[tuple[int, int], int] = {}
    for bubble, read, ns in charged:
        sums[bubble, read] = sums.get((bubble, read), 0) + ns
    assert sums == {(0, 0): 35 * US, (1, 1): 35 * US}


def test_the_places_of_each_finding_add_up_to_its_idle(loop: Read):
    report = loop.head["report"]
    sums = [0] * len(report["findings"])
    for finding, rest in zip(loop["place.finding"], loop["place.rest"], strict=True):
        sums[finding] += 40 * US - rest
    assert sums == [f["exposed_idle_ns"] for f in report["findings"]]


@pytest.mark.parametrize("name", ["ling3-sglang-h200", "ling3-sglang-h200-node"])
def test_the_report_in_the_page_is_the_one_that_is_printed(name: str):
    made = view_pages.of_file(name, (200, 210))
    read = Read(encode(made))
    assert read.head["report"] == view_pages.report(made)
    idle = sum(view_pages.report(made)["parts_ns"].values())
    first = np.append(True, np.diff(read["piece.bubble"]) > 0)
    assert len(read["bubble.op"]) == int(first.sum())
    assert sum(bubble_lengths(read)) == idle


def bubble_lengths(read: Read) -> list[int]:
    """As assets/recording.js finds them, for one device."""
    start, length = np.array(read["op.start"]), np.array(read["op.length"])
    dry = np.append(start[:1], np.maximum.accumulate(start + length)[:-1])
    op = np.array(read["bubble.op"])
    return (start[op] - dry[op] + np.array(read["bubble.earlier"])).tolist()


def test_two_devices_and_overlapping_operations():
    trace = TraceBuilder()
    for device in (0, 1):
        side = trace.on(device=device, rank=device, process=4000 + device, thread=4000 + device)
        for k in range(2):
            side.launch("a", 100 * US * k, US, 100 * US * k + 5 * US, 10 * US)
            side.launch("b", 100 * US * k + 2 * US, US, 100 * US * k + 12 * US, 10 * US)
    read = Read(encode(view_pages.of(trace.timeline())))
    assert read["op.row"] == [0, 1] * 4  # the second begins before the first ends
    assert [(s["rank"], s["device"]) for s in read.head["streams"]] == [(0, 0), (1, 1)]
    assert read["bubble.device"] == [0, 1]
    assert read["bubble.op"] == [2, 6]
    assert [t["rank"] for t in read.head["threads"]] == [0, 1]


def test_a_window_leaves_out_what_is_far_from_it():
    whole = view_pages.of(with_read(40).timeline())
    part = view_pages.of(with_read(40).timeline(), window=(10, 12))
    assert len(Read(encode(whole))["op.start"]) == 40
    read = Read(encode(part))
    # Steps of 100 us begin with the bubble before their kernel: 10 and 11 are 980 to 1180 us.
    assert (read.head["devices"][0]["start_ns"], read.head["devices"][0]["end_ns"]) == (0, 200 * US)
    assert (
        read["op.start"]
        == [-60 * US, 40 * US, 140 * US, 200 * US + 40 * US][: len(read["op.start"])]
    )
    assert len(read["op.start"]) == 3
    assert read["op.launch"] == [read["call.start"].index(s - 10 * US) for s in read["op.start"]]


def test_more_than_a_page_can_show_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "MOST", 10)
    with pytest.raises(BubblescopeError, match=r"18 events, more than a page can show \(10\)"):
        encode(view_pages.of(with_read(6).timeline()))


def packed(page: str, name: str) -> bytes:
    """What is in the element of that id: base 85 with a comma for "<"."""
    text = re.search(f'id="{name}">([^<]*)<', page)[1]
    return base64.b85decode(text.replace(",", "<"))


@given(st.binary(max_size=70))
def test_bytes_as_digits_that_hold_no_tag(data: bytes):
    made = html.digits(data)
    assert "<" not in made
    assert base64.b85decode(made.replace(",", "<")) == data


def test_a_page_is_whole_in_itself_and_runs_only_its_own_scripts():
    evil = "</script><img src=x onerror=alert(1)>"
    trace = TraceBuilder()
    for k in range(2):
        trace.launch(evil, 100 * k, 5, 100 * k + 10, 50)
    page = diagnosis_page(view_pages.of(trace.timeline(), label=f"/tmp/{evil}.json")).decode()
    assert evil not in page
    assert escape("img src=x onerror=alert(1)") in page  # the title, as text
    assert not re.findall(r"""(?:src|href)=["']?(?!data:)[^"'\s>]*//""", page)
    assert re.findall(r"<script([^>]*)>", page)[-1] == ' type="module"'
    policy = unescape(re.search(r'Policy" content="([^"]*)"', page)[1])
    assert "default-src 'none'" in policy
    script = re.search(r'<script type="module">(.*)</script>', page, re.DOTALL)[1]
    plotly = zlib.decompress(packed(page, "plotly"))
    allowed = set(re.findall(r"'sha256-([^']*)'", policy))
    assert allowed == {
        base64.b64encode(hashlib.sha256(code).digest()).decode()
        for code in (script.encode(), plotly)
    }


def test_an_ablation_page_needs_no_recording():
    page = ablation_page(ablation()).decode()
    assert "recording-0" not in page
    told = json.loads(zlib.decompress(packed(page, "head")))
    assert (told["kind"], told["traces"]) == ("ablation", [None, None, None])
    assert [row["step_ns"] for row in told["ablation"]["rows"]] == [100 * US, 80 * US, 79_800]
