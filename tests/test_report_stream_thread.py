"""What is said of the gaps in graphs: of a GPU's, and of the thread's that stands for one."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from bubblescope.diagnose import Diagnosis, diagnose
from bubblescope.targets.ling.recorder import StreamThreadBackend
from tests.synthetic import TraceBuilder
from tests.test_report_examples import text


def diagnosed(capture: str) -> Diagnosis:
    """Replays 100 us apart, of three nodes of 20 us with 5 us between; each launch lasts 8 us.

    The first node begins 4 us into the launch, so a step has 10 us of graph gap, 4 of launch call.
    """
    trace = TraceBuilder()
    for k in range(6):
        t = 100_000 * k
        nodes = [(f"n{i}", t + 4_000 + 25_000 * i, 20_000) for i in range(3)]
        trace.graph(at=t, dur=8_000, nodes=nodes, graph=1)
    made = trace.timeline()
    return diagnose(replace(made, meta=msgspec.structs.replace(made.meta, capture=capture)))


def said(diagnosis: Diagnosis) -> str:
    """The report's text, its lines joined."""
    return " ".join(text(diagnosis).split())


def test_on_a_gpu_they_may_be_the_profiler_s() -> None:
    found = diagnosed("CUPTI")
    ranked = {f.kind: f.ranked for f in found.findings}
    assert ranked == {"host gap": True, "graph gap": False, "launch call": False}
    report = said(found)
    assert "up to 14 us of it may be the profiler's own" in report
    assert "10 us a step (10.0 %); seen at node level only, not ranked" in report
    assert "4.0 us in cudaGraphLaunch: node level only" in report
    assert "times include the profiler's" in report


def test_on_the_stream_thread_they_are_its_own() -> None:
    found = diagnosed(StreamThreadBackend.title)
    ranked = {f.kind: f.ranked for f in found.findings}
    assert ranked == {"host gap": True, "graph gap": False, "launch call": True}
    report = said(found)
    assert "10 us of it is the stream thread's own." in report
    assert "10 us a step (10.0 %); the stream thread's own, not ranked" in report
    assert "what the stream thread itself needs from one operation to the next" in report
    assert "times include the recorder's" in report
    assert "profiler" not in report
    assert "node level only" not in report
