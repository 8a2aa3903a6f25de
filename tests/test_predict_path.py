"""The critical path and the slack of loops of which both are known."""

from __future__ import annotations

import pytest

from bubblescope.predict import parse, predict
from bubblescope.predict.model import Prediction, Replay
from tests.machine import Instruction, recorded
from tests.test_predict_truth import DEVICE_BOUND, GRAPHS, HOST_BOUND, READ_BOUND, STREAMS


def unchanged(loop: list[Instruction]) -> Replay:
    made = predict(recorded(loop, steps=20), [])
    assert made.unchanged is not None
    return made.unchanged


def path(loop: list[Instruction]) -> dict[tuple[str, str], int]:
    return {(row.kind, row.name): row.ns_per_step for row in unchanged(loop).path}


def test_a_read_bound_step_goes_round_host_and_device() -> None:
    found = path(READ_BOUND)
    assert found == {
        ("device operation", "gemm"): 60_000,
        ("device operation", "pick"): 2_000,
        ("device gap", ""): 2_600,
        ("read return", "cudaStreamSynchronize"): 4_000,
        ("host work", "prepare"): 25_000,
        ("launch", "cudaLaunchKernel"): 6_500,
    }
    assert sum(found.values()) == 100_100


def test_a_device_bound_step_is_on_the_device() -> None:
    assert path(DEVICE_BOUND) == {
        ("device operation", "gemm"): 160_000,
        ("device operation", "norm"): 9_000,
        ("device gap", ""): 3_900,
    }


def test_what_lies_over_the_kernel_before_is_no_part_of_the_path() -> None:
    made = predict(recorded(READ_BOUND, steps=20), [parse("pdl:*=0.5")])
    assert made.changed is not None
    # Of the second gemm and of the pick half a microsecond is hidden; gaps are closed.
    assert {(row.kind, row.name): row.ns_per_step for row in made.changed.path} == {
        ("device operation", "gemm"): 59_500,
        ("device operation", "pick"): 1_500,
        ("read return", "cudaStreamSynchronize"): 4_000,
        ("host work", "prepare"): 25_000,
        ("launch", "cudaLaunchKernel"): 6_500,
    }


def test_a_host_bound_step_is_on_the_host() -> None:
    found = path(HOST_BOUND)
    assert found["host work", "prepare"] == 90_000
    assert found["host work", "sample"] == 20_000
    assert found["host call", "cudaLaunchKernel"] == 12_000
    # The last launch leads from the host to the last operation, once in all steps.
    assert set(found) - {("device operation", "short"), ("launch", "cudaLaunchKernel")} == {
        ("host work", "prepare"),
        ("host work", "sample"),
        ("host call", "cudaLaunchKernel"),
    }


def test_streams_are_crossed_where_they_wait() -> None:
    assert path(STREAMS) == {
        ("device operation", "main"): 80_000,
        ("device operation", "side"): 30_000,
        ("device operation", "join"): 5_000,
        ("device gap", ""): 2_600,
        ("stream wait", "side"): 1_300,
        ("stream wait", "join"): 1_300,
    }


def test_graphs_have_gaps_of_their_own() -> None:
    found = path(GRAPHS)
    assert found["graph gap", ""] == 3 * 700
    assert found["launch", "cudaGraphLaunch"] == 20_000 + 6_500
    assert found["device operation", "mlp"] == 60_000


@pytest.mark.parametrize(
    ("loop", "host_alone", "device_alone"),
    [
        # The host's own step, and kernels with their boundaries.
        (HOST_BOUND, 122_000, 12_000 + 2 * 3_000 + 3 * 1_300),
        (DEVICE_BOUND, 3 * 4_000 + 11_000, 172_900),
        # Alone, the host launches three, waits for the last one's latency and the way back, and
        # works; the device goes from launch to return.
        (READ_BOUND, 2 * 4_000 + 6_500 + 4_000 + 25_000, 6_500 + 62_000 + 2 * 1_300 + 4_000),
    ],
)
def test_slack(loop: list[Instruction], host_alone: int, device_alone: int) -> None:
    made = predict(recorded(loop), [])
    assert made.unchanged is not None
    assert made.step_ns is not None
    slack = made.unchanged.slack
    assert (slack.host_alone_ns, slack.device_alone_ns) == (host_alone, device_alone)
    assert slack.host_ns == made.step_ns - host_alone
    assert slack.device_ns == made.step_ns - device_alone


def test_run_ahead() -> None:
    slack = unchanged(HOST_BOUND).slack
    # A step's first kernel starts as soon as it is launched. Its last one is launched 98 us after
    # and ready 6.5 us later; the device would want it after two kernels and two boundaries.
    assert slack.run_ahead_ns == 6_500
    assert slack.run_ahead_needed_ns == 98_000 + 6_500 - (12_000 + 3_000 + 2 * 1_300)
    ahead = unchanged(DEVICE_BOUND).slack
    assert ahead.run_ahead_ns is not None
    assert ahead.run_ahead_needed_ns is not None
    assert ahead.run_ahead_ns > ahead.run_ahead_needed_ns


def test_both_sides_of_a_prediction_have_a_path() -> None:
    made: Prediction = predict(recorded(READ_BOUND), [parse("read:cudaStreamSynchronize")])
    assert made.changed is not None
    assert {row.kind for row in made.changed.path} == {"device operation", "device gap"}
    assert made.changed.slack.device_ns == 0
