"""The builder of synthetic recordings writes the same thing as Kineto JSON."""

from __future__ import annotations

import numpy as np
import pytest

from bubblescope.ingest import load
from tests.synthetic import BASE_NS, TraceBuilder


def everything() -> TraceBuilder:
    trace = TraceBuilder().launch("gemm", at=1_001, dur=999, start=2_003, run=10_007)
    trace.range("op", "aten::item", 2_000, 20_000).range("python", "f.py(3): f", 1_000, 30_000)
    trace.copy("DtoH", at=2_500, dur=500, start=12_500, run=77)
    trace.sync(at=3_100, dur=9_600, row="stream").record("done", 13_000, 10)
    other = trace.on(thread=4001, stream=9, device=1).stream_wait("done", 13_100, 10)
    other.graph(at=13_200, dur=300, nodes=[("a", 13_400, 50), ("b", 13_460, 1)], graph=3)
    other.sync(at=13_600, dur=5, call="cudaEventSynchronize", row="event", event="done")
    other.queries(at=13_700, count=2, every=100, dur=20).memset(14_000, 5, 14_010, 3)
    return trace.overhead("Activity Buffer Request", 14_100, 50)


@pytest.mark.parametrize("gz", [False, True])
def test_kineto_file_reads_back_as_the_same_recording(tmp_path, gz):
    trace = everything()
    read = load(trace.write_kineto(tmp_path / "trace.json", gz=gz))
    made = trace.timeline()
    base = {"start": read.meta.base_ns, "end": read.meta.base_ns}
    assert read.meta.base_ns in (0, BASE_NS)
    skipped = {"frame", "bytes", "status"}  # Kineto does not carry what a call returned
    for name in ("device_ops", "host_calls", "ranges"):
        ours, theirs = getattr(read, name), getattr(made, name)
        assert len(ours) == len(theirs), name
        for column in set(type(ours).__slots__) - skipped:
            got, expected = getattr(ours, column), getattr(theirs, column)
            if isinstance(got, np.ndarray):
                got = got - base.get(column, 0)
                assert got.tolist() == expected.tolist(), (name, column)
            else:
                assert got == expected, (name, column)


def test_ids_of_two_ranks_collide():
    trace = TraceBuilder().launch("a", 0, 1, 2, 1)
    trace.on(rank=1).launch("b", 0, 1, 2, 1)
    assert trace.timeline().device_ops.correlation.tolist() == [1, 1]


def test_a_kineto_file_holds_one_rank(tmp_path):
    trace = TraceBuilder().launch("a", 0, 1, 2, 1)
    trace.on(rank=1).launch("b", 0, 1, 2, 1)
    with pytest.raises(ValueError, match="one rank"):
        trace.write_kineto(tmp_path / "trace.json")
