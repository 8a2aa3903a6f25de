# ruff: noqa: E501 - expected rows stand as they are printed, 100 columns wide
from __future__ import annotations

from dataclasses import replace

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import (
    Clocks,
    HealthNote,
    Part,
)
from bubblescope.report.header import clocks
from bubblescope.timeline.meta import Meta
from tests.synthetic import TraceBuilder
from tests.test_report_examples import (
    decode,
    device_of,
    diagnosis_of,
    section,
    steps_of,
    text,
    window_only,
)


def test_the_header_says_what_ran_and_how_far_to_trust_it() -> None:
    assert text(decode()).splitlines()[:12] == [
        "decode.json.gz",
        "device    NVIDIA H200, rank 0 of 1",
        "capture   torch.profiler, node level; no unprofiled step time in this file: times include the",
        "          profiler's",
        "steps     4 whole (marker: scheduler.run_batch), median 8,674 us, 8,474 to 8,774; 1 outlier apart,",
        "          up to 68,674 us; not counted: 2 cut",
        "clocks    host and device clocks agree to within 6.0 us",
        "! doubt   Kernels of 1 launch were not recorded.",
        "! doubt   cut: 2, device operations had no length",
        "",
        "Idle 2,854 us a step (32.9 %), mainly host gap and launch call; up to 941 us of it may be the",
        "profiler's own.",
    ]


def test_an_unprofiled_step_time_is_set_beside_the_recorded_one() -> None:
    meta = Meta(source="x", format="kineto", unprofiled_step_ns=7_000_000)
    said = text(replace(decode(), meta=meta))
    assert "kineto, node level; 7,000 us a step without any profiler, 1.24 times that here" in said
    assert "no unprofiled" not in said


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (Clocks(-2_000, 6_400, 0), "host and device clocks agree to within 6.4 us"),
        (Clocks(-20_000, 6_400, 0), "host and device clocks agree to within 20 us"),
        (
            Clocks(-20_000, 6_400_000, 0),
            "no sign that host and device clocks differ: the device's is at most 20 us ahead and at "
            "most 6,400 us behind",
        ),
        (Clocks(None, None, 0), "nothing in this file shows whether host and device clocks agree"),
        (
            Clocks(30_000, 34_000, 30_000),
            "device times moved 30 us later to fit the host's; they now agree to within 4.0 us",
        ),
        (
            Clocks(None, -30_000, -30_000),
            "device times moved 30 us earlier to fit the host's; bounded on one side only",
        ),
        (
            Clocks(9_000, -3_000, 0),
            "host and device clocks contradict each other by 12 us: no one correction fits",
        ),
        (
            Clocks(400_000, None, 0),
            "host and device clocks are at least 400 us apart, not corrected",
        ),
        (
            Clocks(None, -400_000, 0),
            "host and device clocks are at least 400 us apart, not corrected",
        ),
        (
            Clocks(-3_000, None, 0),
            "the device clock is at most 3.0 us ahead; how far behind is not recorded",
        ),
        (
            Clocks(None, 3_000, 0),
            "the device clock is at most 3.0 us behind; how far ahead is not recorded",
        ),
    ],
)
def test_clocks_are_said_in_words(bounds: Clocks, said: str) -> None:
    assert clocks(bounds) == said


def test_a_doubt_is_said_once() -> None:
    note = "18 of 20 graph launches left no device record, throughout the recording"
    lost = HealthNote("launch without device record", 18, note)
    few = HealthNote("duplicate", 1_200, "dropped: 1,200 device_ops")
    unsaid = replace(decode(), warnings=(), health=(lost, few))
    assert f"! doubt   {note}\n! doubt   dropped: 1,200 device_ops\n" in text(unsaid)
    warned = text(replace(unsaid, warnings=(f"{note}: what lies between them is unknown.",)))
    assert warned.count("left no device record") == 1


def test_a_note_without_its_count_gets_it() -> None:
    # The byte offset holds the digits of the count, and is none.
    lost = HealthNote("lost event", 1, "dropped: nothing readable there; the first at byte 10,817")
    more = HealthNote("lost event", 10, "dropped: nothing readable there; the first at byte 10,817")
    parts = HealthNote("zero time", 5, "zero time, dropped: 3 device operations, 2 host calls")
    said = text(replace(decode(), health=(lost, more, parts)))
    assert "! doubt   zero time, dropped: 3 device operations, 2 host calls\n" in said
    assert "! doubt   lost event: dropped: nothing readable there; the first at byte 10,817" in said
    assert "! doubt   lost event: 10, dropped: nothing readable there; the first at byte" in said


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (2, 1, "No figure for idle: 3 of 4 launches left no device record.\n"),
        (3, 0, "100.0 % busy: nothing to gain here."),  # of what follows the first record
        (1, 0, "100.0 % busy: nothing to gain here."),
        (0, 3, "100.0 % busy: nothing to gain here."),
    ],
)
def test_a_few_records_are_no_sample(before: int, after: int, said: str) -> None:
    trace = TraceBuilder()
    for k in range(before):
        trace.lost(at=100 * k, dur=10, call="cudaGraphLaunch")
    trace.graph(at=1_000, dur=10, nodes=[("a", 1_020, 50), ("b", 1_070, 50)])
    for k in range(after):
        trace.lost(at=2_000 + 100 * k, dur=10, call="cudaGraphLaunch")
    assert said in text(diagnose(trace.timeline()))


def test_copies_alone_are_no_sample_of_kernels() -> None:
    trace = TraceBuilder().lost(at=0, dur=10)
    trace.copy("DtoH", at=20, dur=10, start=40, run=50)
    assert "No figure for idle: 1 of 1 launches left no device" in text(diagnose(trace.timeline()))


def test_nothing_to_gain_is_said_plainly() -> None:
    said = text(window_only(99_951, {Part.DEVICE_GAP: 49}))
    assert "99.9 % busy: nothing to gain here. Busy means that something is resident, never" in said
    assert "Idle " not in said


def test_nothing_to_gain_does_not_speak_for_the_inside_of_graphs() -> None:
    whole = device_of(steps_of([]), end=1_000, busy_ns=1_000, opaque_ns=900)
    said = " ".join(text(diagnosis_of(whole)).split())
    assert "What happens inside graphs was not recorded." in said


def test_no_headline_where_much_is_unknown() -> None:
    said = text(window_only(600, {Part.HOST_GAP: 100, Part.UNKNOWN: 300}), width=120)
    assert "No figure for idle: 30.0 % of the window is unknown" in said
    assert "anything from 10.0 to 40.0 % may be idle" in " ".join(said.split())
    assert "Idle " not in said
    quiet = text(window_only(950, {Part.UNKNOWN: 50}))
    assert "No figure" not in quiet


def test_unknown_beats_nothing_to_gain() -> None:
    said = text(window_only(900, {Part.UNKNOWN: 100}))
    assert "nothing to gain" not in said


def test_several_devices_have_a_line_each() -> None:
    steps = steps_of([(600_000, 0, {Part.HOST_GAP: 400_000})] * 3)
    first = device_of(steps)
    second = device_of(steps_of([]), rank=1, end=2_000_000, busy_ns=2_000_000, device=1)
    second = replace(second, parts_ns=dict.fromkeys(Part, 0))
    both = diagnosis_of(first, second, meta=Meta("x", "y", world_size=8))
    said = text(both)
    assert "device    2 x NVIDIA H200, ranks 0, 1 of 8" in said
    assert section(said, "Devices") == [
        "Devices  figures above are sums over them",
        "  rank  device               window us  busy %  idle us  steps  step us",
        "     0       0  NVIDIA H200      3,000    60.0    1,200      3    1,000",
        "     1       1  NVIDIA H200      2,000   100.0        0",
    ]
    many = [replace(first, rank=n) for n in (0, 1, 2, 3, 5)]
    assert "ranks 0 to 3, 5 of 6" in text(diagnosis_of(*many))


def test_steps_whose_beginning_was_not_recorded_are_not_counted() -> None:
    steps = steps_of(
        [(9, 0, {}), (9, 0, {}), (9, 0, {}), (9, 0, {Part.UNKNOWN: 1})], cut=(2, 3), headless=(0,)
    )
    said = " ".join(text(diagnosis_of(device_of(steps))).split())
    assert "2 whole (marker: scheduler.run_batch), <0.1 us" in said
    assert "not counted: 1 cut, 1 partly unknown, 1 without its beginning" in said


def test_a_skew_that_was_corrected_is_said_once() -> None:
    skew = HealthNote("clock skew", 1, "device times moved by +3.000 us")
    moved = replace(decode(), health=(skew,), clocks=Clocks(3_000, 5_000, 3_000))
    assert text(moved).count("device times moved") == 1
    assert "clock skew: device times moved" in text(replace(moved, clocks=Clocks(1, 2, 0)))
