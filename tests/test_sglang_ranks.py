"""SGLang with several tensor-parallel ranks: each of them counts, is switched and is recorded.

SGLang passes on what the first rank says, and nothing of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubblescope.capture.cupti import library
from bubblescope.errors import BubblescopeError
from bubblescope.targets.sglang.target import SGLang
from optimizations.registry import applied
from tests.sglang_fake import installed


@pytest.fixture(scope="module")
def pair() -> Iterator[SGLang]:
    made = SGLang(tp=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "find", lambda: None)
        with installed(FAKE_PROFILER="works"):
            made.start()
    yield made
    made.stop()


@pytest.fixture
def target(pair: SGLang) -> SGLang:
    pair.as_shipped = True
    return pair


def left(target: SGLang, pattern: str) -> list[str]:
    return sorted(path.name for path in target._engine().folder.glob(pattern))


def log_of(error: pytest.ExceptionInfo[BubblescopeError]) -> Path:
    return Path(str(error.value).rpartition("its log: ")[2])


def test_every_rank_counts_the_steps_and_is_waited_for(target: SGLang) -> None:
    target._call("lag", {}, lambda *_: None)
    assert len(target.run(4).began) == 5
    assert left(target, "steps*.json") == ["steps1-0.json", "steps1-1.json"]


def test_the_windows_of_all_ranks_are_joined(target: SGLang) -> None:
    timeline = target.record("graph", 5, 2).timeline
    assert sorted(set(timeline.device_ops.rank.tolist())) == [0, 1]
    assert sorted(set(timeline.steps.rank.tolist())) == [0, 1]
    numbers = timeline.steps.number[timeline.steps.rank == 1]
    assert numbers.tolist() == [3, 4, 5, 6, 7]


def test_every_rank_is_switched(target: SGLang) -> None:
    target.as_shipped = False
    target.run(3)
    assert left(target, "facts*.json") == ["facts-0.json", "facts-1.json"]


def test_a_rank_that_does_not_count_is_refused(target: SGLang) -> None:
    target._call("fail_on_rank_1", {"name": "bubblescope_arm"}, lambda *_: None)
    with pytest.raises(BubblescopeError, match=r"rank 1 of 2 did not count the steps") as error:
        target.run(3)
    log_of(error).unlink()


def test_a_rank_that_is_not_switched_is_refused(target: SGLang) -> None:
    """It switched before, and left a file then."""
    target._call("fail_on_rank_1", {"name": "bubblescope_set"}, lambda *_: None)
    with (
        applied(["glue-graph"], target),
        pytest.raises(BubblescopeError, match=r"rank 1 of 2 did not take the switches") as error,
    ):
        target.run(3)
    log_of(error).unlink()


@pytest.mark.parametrize("argument", ["pp_size=2", "dp_size=4", "nnodes=2"])
def test_processes_that_are_no_tensor_parallel_ranks_are_refused(argument: str) -> None:
    with pytest.raises(BubblescopeError, match=f"^--engine {re.escape(argument)}: only tensor"):
        SGLang(engine=(argument,))
