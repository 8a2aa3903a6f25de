"""Inputs made from public reports on streams, communication and ranks: figures from their events.

All in us, by hand, as in test_reports.py, which has the others.
"""

from __future__ import annotations

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Diagnosis
from bubblescope.ingest import load
from tests.corpus import need
from tests.ranks import together

US = 1_000


def seen(*entries: str) -> Diagnosis:
    return diagnose(together([load(need(f"reports/{entry}.json")) for entry in entries]))


def test_communication_in_full() -> None:
    # 16: gemm [1010,2010) and [2400,3000), NCCL [1500,2200): 510 hidden, 190 exposed, gap 200.
    d = seen("16")
    (device,) = d.devices
    assert (device.busy_ns, device.window_ns) == (1_790 * US, 1_990 * US)
    assert (device.idle_ns, device.overlapped_ns) == (200 * US, 510 * US)
    assert d.communication is not None
    total = d.communication.total
    assert (total.busy_ns, total.hidden_ns) == (700 * US, 510 * US)
    assert total.exposed_ns == 190 * US
    assert device.busy_ns - total.exposed_ns == 1_600 * US  # compute


def test_hip_names_and_stream_0() -> None:
    # 20: [1010,1110), [1510,1610), copy [1612,1616) under hipMemcpyWithStream [1520,1640): the
    # gap of 2 lies inside that call, and the copy is the read.
    d = seen("20")
    (device,) = d.devices
    assert (device.bubbles.end - device.bubbles.start).tolist() == [400 * US, 2 * US]
    parts = {part.label: ns // US for part, ns in device.parts_ns.items() if ns}
    assert parts == {"host gap": 390, "launch call": 5 + 2, "launch latency": 5}
    (read,) = d.reads
    assert (read.name, read.calls, read.waited) == ("hipMemcpyWithStream", 1, 1)
    assert read.blocked_ns == 120 * US
    assert d.launches is not None
    (kernel,) = d.launches.calls
    assert (kernel.kind, kernel.call.count, kernel.call.max_ns) == ("kernel", 2, 5 * US)


@pytest.mark.parametrize("entry", ["29", "35_rank0", "35_rank1"])
def test_one_rank_says_nothing_of_waiting(entry: str) -> None:
    d = seen(entry)
    assert d.communication is not None
    assert d.communication.total.waiting_ns is None
    assert d.communication.late == ()
    assert "may be waiting for the other 1" in d.communication.note


def test_a_trace_of_one_of_two_workers() -> None:
    # 29: [1010,1060) and an all-reduce [1110,2010): 950 of 1,000.
    d = seen("29")
    assert (d.total("busy_ns"), d.total("window_ns")) == (950 * US, 1_000 * US)
    assert d.meta.world_size == 2


def test_the_late_rank() -> None:
    # 35: an all-reduce [2010,7110) on rank 0 and [7010,7110) on rank 1, whose device is dry from
    # 2010 on: encode [2020,6920), nothing to the call [7000,7005), then latency.
    d = seen("35_rank0", "35_rank1")
    said = d.communication
    assert said is not None
    assert [x.busy_ns for x in said.devices] == [5_100 * US, 100 * US]
    assert [x.waiting_ns for x in said.devices] == [5_000 * US, 0]
    late, early = said.late
    assert (late.rank, late.met, late.last) == (1, 1, 1)
    assert late.late_ns == late.others_waited_ns == early.waited_ns == 5_000 * US
    assert late.during_ns == {
        "host gap": 4_990 * US,
        "launch call": 5 * US,
        "launch latency": 5 * US,
    }
    assert (late.doing[0].name, late.doing[0].ns) == ("tokenizer.py(12): encode", 4_900 * US)
    idle = {device.rank: device.idle_ns for device in d.devices}
    # Each also waits 30 for its last launch: [7110,7140).
    assert idle == {0: 30 * US, 1: 5_030 * US}
