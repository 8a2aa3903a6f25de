"""On the SGLang pair of the corpus every figure agrees with the oracle, to the nanosecond."""

from __future__ import annotations

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
from bubblescope.timeline import Timeline
from tests.agreement import said, true
from tests.corpus import need
from tests.oracle import Oracle, solve, steps

MARKER = "scheduler.run_batch"
SYNC = "traces/sglang_ling3_h200_nextn_seqlen_sync.json.gz"
NO_SYNC = "traces/sglang_ling3_h200_nextn_no_sync.json.gz"


@pytest.fixture(scope="module", params=[SYNC, NO_SYNC], ids=["seqlen_sync", "no_sync"])
def recorded(request) -> tuple[str, Timeline, Oracle]:
    timeline = load(need(request.param))
    return request.param, timeline, solve(timeline)


def test_every_bubble_part_and_read_agrees(recorded):
    _, timeline, truth = recorded
    ours, theirs = said(diagnose(timeline)), true(truth)
    assert ours["clocks"] == theirs["clocks"]
    assert ours["reads"] == theirs["reads"]
    assert ours["devices"].keys() == theirs["devices"].keys()
    for place, device in theirs["devices"].items():
        for what, value in device.items():
            assert ours["devices"][place][what] == value, what


def test_every_step_agrees(recorded):
    path, timeline, truth = recorded
    marks = [(r.rank, r.process, r.start) for r in truth.ranges if r.name == MARKER]
    table = diagnose(timeline, marker=MARKER).devices[0].steps
    bounds = steps(truth.devices[0], marks)
    assert list(zip(table.start.tolist(), table.end.tolist(), strict=True)) == bounds
    for i, (start, end) in enumerate(bounds):
        parts = truth.devices[0].parts(start, end)
        assert {p: int(table.parts_ns[i, p]) for p in parts} == parts
        assert table.busy_ns[i] + sum(parts.values()) == end - start
    # The design's worked example, in us.
    counted = table.counted()
    assert int(counted.sum()) == 9
    median = table.median(table.end - table.start)
    assert median is not None
    assert round(median / 1000) == (8_690 if path == SYNC else 7_504)


def test_the_read_back_is_there_in_one_of_the_pair_only(recorded):
    path, _, truth = recorded
    reads = [r for r in truth.reads if r.name == "cudaStreamSynchronize"]
    assert len(reads) == (10 if path == SYNC else 0)
    if reads:
        assert round(sum(r.back - r.begin for r in reads) / 100_000) == 69  # 6.9 ms in all
        assert all(r.exposed == r.back - r.begin for r in reads[1:])
