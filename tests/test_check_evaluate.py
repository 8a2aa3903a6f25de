"""Budgets on loops whose figures are known by construction: see tests/loops.py."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path

import pytest

from bubblescope.check import Baseline, Budget, evaluate
from bubblescope.check.model import CheckLine
from bubblescope.check.source import line_of
from bubblescope.diagnose.model import Site
from bubblescope.errors import BubblescopeError
from bubblescope.report.check import as_text, to_json
from tests.loops import US, run, with_read, without
from tests.synthetic import TraceBuilder


def check(trace: TraceBuilder, **limits: str | int) -> CheckLine:
    (line,) = evaluate(run(trace), Budget.parse(**limits))
    return line


@pytest.mark.parametrize(
    ("limits", "name", "measured", "fails"),
    [
        ({"max_reads": 1}, "blocking reads a step", 1, {"max_reads": 0}),
        ({"max_reads_in_all": 6}, "blocking reads in all", 6, {"max_reads_in_all": 5}),
        ({"max_idle": "40%"}, "idle", Fraction(2, 5), {"max_idle": "39.999%"}),
        ({"max_idle": "40us"}, "idle a step", 40_000, {"max_idle": "39999ns"}),
        ({"max_step": "100us"}, "step", 100_000, {"max_step": "99.999us"}),
        ({"max_launches": 1}, "launches a step", 1, {"max_launches": "0.9"}),
    ],
)
def test_a_limit_may_be_reached_and_not_exceeded(limits, name, measured, fails):
    line = check(with_read(), **limits)
    assert (line.name, line.measured, line.passed, line.where) == (name, measured, True, ())
    line = check(with_read(), **fails)
    assert (line.measured, line.passed) == (measured, False)
    assert line.where


def test_who_read():
    (culprit,) = check(with_read(), max_reads=0).where
    assert (culprit.what, culprit.calls, culprit.blocked_ns, culprit.idle_ns) == (
        "cudaStreamSynchronize",
        1.0,
        65_000,
        35_000,
    )
    (culprit,) = check(with_read(), max_reads_in_all=0).where
    # Of the six all but the last, after which nothing comes, are charged with 35 us.
    assert (culprit.calls, culprit.blocked_ns, culprit.idle_ns) == (6, 390_000, 175_000)


def test_who_idles_the_worst_first():
    blame = check(with_read(), max_idle="5%").where
    assert [c.idle_ns for c in blame] == sorted((c.idle_ns for c in blame), reverse=True)
    assert blame[0].idle_ns == 35_000


def test_each_limit_has_a_line_in_the_budget_s_order():
    lines = evaluate(
        run(without()), Budget.parse(max_launches=1, max_step="70us", max_idle="20%", max_reads=0)
    )
    assert [line.name for line in lines] == [
        "blocking reads a step",
        "idle",
        "step",
        "launches a step",
    ]
    assert all(line.passed for line in lines)


def test_reads_a_step_are_a_mean():
    trace = without()
    trace.sync(20 * US, 65 * US)  # in step 0, which does not count
    assert check(trace, max_reads=0).passed
    trace.sync(160 * US, 65 * US)
    line = check(trace, max_reads=0)
    assert (line.measured, line.passed) == (Fraction(1, 5), False)


# What was not measured never passes ------------------------------------------------------------


def no_steps() -> TraceBuilder:
    """Busy 200 of 310."""
    return TraceBuilder().launch("a", 0, 5, 10, 100).launch("b", 200, 5, 220, 100)


@pytest.mark.parametrize(
    "limits", [{"max_reads": 9}, {"max_idle": "9s"}, {"max_step": "9s"}, {"max_launches": 9}]
)
def test_no_step_is_an_error_where_a_step_is_limited(limits):
    with pytest.raises(BubblescopeError, match="synthetic: no step was recorded whole, so "):
        check(no_steps(), **limits)


def test_the_window_is_measured_where_there_are_no_steps():
    assert check(no_steps(), max_idle="50%").measured == Fraction(110, 310)
    assert check(no_steps(), max_reads_in_all=0).measured == 0


@pytest.mark.parametrize("limits", [{"max_reads": 0}, {"max_reads_in_all": 0}, {"max_launches": 9}])
def test_a_recording_without_host_calls_shows_no_reads(limits):
    trace = TraceBuilder().orphan("a", 10, 100).orphan("b", 200, 100)
    with pytest.raises(BubblescopeError, match="no host call in it, so"):
        check(trace, **limits)


def test_unknown_time_fails_the_idle_limit():
    def loop(unknown: int) -> TraceBuilder:
        trace = with_read(6)  # a window of 560 us, and a bubble after it that nobody explains
        return trace.orphan("x", 580 * US + unknown, 10 * US)

    line = check(loop(100 * US), max_idle="90%")
    assert (line.measured, line.passed) == (None, False)
    assert line.note == "cannot tell: 14.9 % of the window is unknown"  # 100 of 670 us
    assert as_text([line]) == f"idle: at most 90.0 %; {line.note}"
    assert check(loop(100 * US), max_idle="90us").measured is None
    assert check(loop(1 * US), max_idle="90%").passed  # under a hundredth


# Baselines -------------------------------------------------------------------------------------


def against(before: TraceBuilder, after: TraceBuilder, tolerance: str = "5") -> tuple[bool, ...]:
    share = Fraction(tolerance) / 100
    lines = evaluate(run(after), Budget(), Baseline("good", run(before), share))
    assert [line.name for line in lines] == [
        "step against good",
        "idle a step against good",
        "blocking reads a step against good",
    ]
    return tuple(line.passed for line in lines)


def test_no_worse_than_a_baseline():
    assert against(with_read(), with_read()) == (True, True, True)
    assert against(with_read(), without()) == (True, True, True)
    assert against(without(), with_read()) == (False, False, False)


def test_the_tolerance_is_a_share_of_the_baseline():
    # 107 us after 100; idle and reads are the same.
    assert against(with_read(), with_read(more=7), "7") == (True, True, True)
    assert against(with_read(), with_read(more=7), "6.9") == (False, True, True)


def test_a_limit_is_never_within_the_spread_of_the_baseline_s_own_steps():
    uneven = TraceBuilder()
    t = 0
    for k, run_us in enumerate([60, 60, 70, 80, 80, 80]):
        uneven.step(k, t, 90 * US)
        uneven.launch("gemm", t + 10 * US, 5 * US, t + 20 * US, run_us * US)
        t += (run_us + 40) * US
    lines = evaluate(run(uneven), Budget(), Baseline("good", run(uneven), Fraction(0)))
    # Steps of 100, 110, 120, 120, 120 us: 120 and a spread of 10.
    assert (lines[0].measured, lines[0].limit) == (120_000, 130_000)


def test_idle_is_not_held_against_another_overlap():
    side = without()
    for k in range(6):
        at = 70 * k
        side.on(stream=9).launch("side", (at + 16) * US, US, (at + 25) * US, 30 * US)
    lines = evaluate(run(side), Budget(), Baseline("good", run(without()), Fraction(1, 20)))
    assert [line.passed for line in lines] == [True, False, True]
    assert lines[1].note.startswith(
        "cannot tell: operations overlap for 0 us a step in A and 30 us"
    )
    assert lines[1].note.endswith("(A is good)")


def test_a_baseline_without_steps_is_an_error():
    with pytest.raises(BubblescopeError, match="the step against baseline good cannot be checked"):
        evaluate(run(without()), Budget(), Baseline("good", run(no_steps()), Fraction(0)))


# Source lines and what is printed --------------------------------------------------------------


def test_the_source_line_is_shown_if_the_file_is_as_it_was(tmp_path: Path):
    file = tmp_path / "loop.py"
    file.write_text("a = 1\n    b = x.item()\n")
    os.utime(file, ns=(50, 50))
    site = Site(str(file), 2, "step")
    assert line_of(site, recorded_ns=50) == "b = x.item()"
    assert line_of(site, recorded_ns=49) == ""  # written since
    assert line_of(Site(str(file), 3, "step"), 50) == ""
    assert line_of(Site(str(file), 0, "step"), 50) == ""
    assert line_of(Site(str(tmp_path / "gone.py"), 1, ""), 50) == ""
    assert line_of(Site(str(tmp_path), 1, ""), 50) == ""
    assert line_of(Site("/dev/zero", 1, ""), 50) == ""
    assert line_of(Site("a\0.py", 1, ""), 50) == ""
    assert line_of(None, 50) == ""


def test_text_of_what_failed():
    lines = evaluate(run(with_read()), Budget.parse(max_reads=0, max_step="100us", max_idle="0"))
    assert as_text(lines).splitlines()[:3] == [
        "blocking reads a step: 1, at most 0",
        "  cudaStreamSynchronize",
        "    1.0 calls a step, blocked 65 us a step, idle 35 us a step",
    ]
    assert "idle a step: 40 us, at most 0 us" in as_text(lines)
    assert "100 us" not in as_text(lines)  # the step is within its limit


def test_figures_that_look_alike_are_told_exactly():
    text = as_text(evaluate(run(with_read()), Budget.parse(max_step="99.999us")))
    assert text.splitlines()[0] == "step: 100,000 ns, at most 99,999 ns"


def test_json():
    lines = evaluate(run(with_read()), Budget.parse(max_reads=0, max_idle="40%", max_step="100us"))
    told = json.loads(to_json("a\udcff.bscope", lines))
    assert (told["version"], told["source"], told["passed"]) == (1, "a?.bscope", False)
    figures = [
        (x["name"], x["unit"], x["measured"], x["limit"], x["passed"]) for x in told["lines"]
    ]
    assert figures == [
        ("blocking reads a step", "count", 1, 0, False),
        ("idle", "share", 0.4, 0.4, True),
        ("step", "ns", 100_000, 100_000, True),
    ]
    assert told["lines"][0]["where"] == [
        {
            "what": "cudaStreamSynchronize",
            "site": None,
            "source": "",
            "per_step": True,
            "calls": 1.0,
            "blocked_ns": 65_000,
            "idle_ns": 35_000,
        }
    ]


def test_a_window_is_checked_alone():
    (line,) = evaluate(run(with_read(8), (2, 5)), Budget.parse(max_reads_in_all=3))
    assert line.passed
