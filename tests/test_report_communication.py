"""What the report says of communication, launches and phases: lines of text from known figures."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import msgspec
from rich.console import Console

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Diagnosis
from bubblescope.report.as_json import ReportJson, to_json
from bubblescope.report.terminal import render
from tests.synthetic import TraceBuilder

US = 1_000
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def text(diagnosis: Diagnosis, width: int = 100, **asked: Any) -> str:
    out = io.StringIO()
    render(diagnosis, {}, Console(file=out, width=width, no_color=True), **asked)
    return out.getvalue()


def joined(said: str) -> str:
    """On one line, so that it does not matter where it was broken."""
    return " ".join(said.split())


def ranks(late: int, steps: int = 8) -> Diagnosis:
    """Two ranks that decode in steps of 1 ms, with an all-reduce to which rank 1 comes late."""
    trace = TraceBuilder()
    for k in range(steps):
        for rank in (0, 1):
            here, at = trace.on(rank=rank), 1_000 * US * k
            here.range("annotation", f"decode {k}", at, 900 * US)
            here.launch("gemm", at=at + 10 * US, dur=5 * US, start=at + 20 * US, run=200 * US)
            behind = rank * late * US
            if rank and late:
                here.range("op", "tokenize", at + 230 * US, late * US)
            here.launch(
                REDUCE,
                at=at + 280 * US + behind,
                dur=5 * US,
                start=at + 300 * US + behind,
                run=(50 + late) * US - behind,
            )
    return diagnose(trace.timeline())


def test_hidden_exposed_and_the_late_rank() -> None:
    said = joined(text(ranks(late=100)))
    # A step: 150 on rank 0 and 50 on rank 1; rank 0 waits 100 of its.
    assert "Communication us a step, medians, summed over 2 devices" in said
    assert "200 us in communication: 0 hidden behind other work, 200 exposed" in said
    assert "of which 100 waited for other ranks" in said
    assert "all-reduce 16 100 150 1,600 800" in said
    assert "Rank 1 is late: last to 8 of 8 collectives, for which the others waited 800 us" in said
    # Of the 100 in a step, "tokenize" holds [300, 330) and nothing the rest up to the call.
    assert "its host was in tokenize 240 us" in said


def test_nobody_is_called_late_for_next_to_nothing() -> None:
    said = joined(text(ranks(late=1)))
    assert "1 0 8 of 8 8.0 8.0 0" in said
    assert "is late" not in said


def test_one_rank_of_two() -> None:
    trace = TraceBuilder().launch("gemm", at=0, dur=5, start=10, run=100)
    trace.launch(REDUCE, at=20, dur=5, start=110, run=50)
    said = joined(text(diagnose(trace.timeline())))
    assert "may be waiting for ranks that are not here" in said
    assert "waited for other ranks" not in said


def test_nothing_is_said_where_devices_exchange_nothing() -> None:
    trace = TraceBuilder().launch("gemm", at=0, dur=5, start=10, run=100)
    assert "Communication" not in text(diagnose(trace.timeline()))


def test_a_few_lines_on_launches_or_all_figures() -> None:
    d = ranks(late=100)
    few, every = text(d), text(d, launches=True)
    assert "--launches shows all figures" in few
    assert "2 launches a step" not in few  # two of each of two ranks
    assert "4 launches a step; a call takes 5.0 us for a kernel (median)" in joined(few)
    assert "call to start, device idle" not in few
    # 16 gemms met an idle device 10 after their call, 16 all-reduces 20 after it.
    assert "kernel call to start, device idle 32 10 15 20 20 20" in joined(every)
    assert "least run-ahead" not in every  # the host is never ahead
    assert "kernel queued" not in every


def test_run_ahead_is_drawn() -> None:
    trace = TraceBuilder()
    for k in range(40):
        trace.launch("k", at=10 * US * k, dur=US, start=100 * US * k + 5 * US, run=100 * US)
    d = diagnose(trace.timeline())
    said = text(d, launches=True)
    assert "least run-ahead over the window" in said
    drawn = next(line for line in said.splitlines() if "█" in line and "busy" not in line)
    # It rises from nothing to 39 kernels of which a tenth has run: the last is the highest.
    assert drawn.strip().endswith("█" + "·" * drawn.count("·"))
    written = io.BytesIO()
    plain = io.TextIOWrapper(written, encoding="ascii")
    render(d, {}, Console(file=plain, width=100, no_color=True), launches=True)
    plain.flush()
    assert b"least run-ahead over the window" in written.getvalue()
    assert b"@" in written.getvalue()


def phased() -> Diagnosis:
    trace, at = TraceBuilder(), 0
    for k in range(8):
        prefill = k in (2, 5)
        long = (5_000 if prefill else 1_000) * US
        name = "step[EXTEND bs=1 toks=512]" if prefill else "step[DECODE bs=1]"
        trace.range("annotation", name, at, long - 100 * US)
        run = long - 700 * US
        trace.launch("k", at=at + 100 * US, dur=5 * US, start=at + 200 * US, run=run)
        at += long
    return diagnose(trace.timeline())


def test_how_many_steps_of_each_phase() -> None:
    said = joined(text(phased()))
    assert "8 whole: 6 decode, 2 prefill (marker: step[...]), median 1,000 us" in said
    assert "2 not decode" in said
    told = msgspec.json.decode(to_json(phased(), {}), type=ReportJson)
    assert told.steps.phases == {"decode": 6, "prefill": 2}
    assert [s.phase for s in told.steps.each].count("prefill") == 2
    assert [s.counted for s in told.steps.each if s.phase == "prefill"] == [False, False]


def test_the_report_as_json_reads_back_as_it_was() -> None:
    d = ranks(late=100)
    told = msgspec.json.decode(to_json(d, {}), type=ReportJson)
    assert told.communication == d.communication
    assert told.launches == d.launches


def test_names_that_no_json_can_hold() -> None:
    d = ranks(late=100)
    assert d.communication is not None
    hostile = replace(d.communication, note="lone \ud800 surrogate")
    told = msgspec.json.decode(
        to_json(replace(d, communication=hostile), {}), type=ReportJson
    ).communication
    assert told is not None
    assert told.note == "lone ? surrogate"


def test_narrow_pages() -> None:
    for width in (40, 60, 80):
        said = text(ranks(late=100), width=width, launches=True)
        assert max(map(len, said.splitlines())) <= width
