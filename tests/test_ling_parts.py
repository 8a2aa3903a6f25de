"""Replacing parts of the embedded loop's model while it runs, on the CPU stream thread."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.loop import Loop  # noqa: E402
from bubblescope.targets.ling.parts import Parts  # noqa: E402
from bubblescope.targets.ling.scheduler import Scheduler  # noqa: E402
from bubblescope.targets.ling.stream_thread import StreamThread  # noqa: E402
from bubblescope.targets.ling.weights import Weights  # noqa: E402
from bubblescope.targets.target import Switch  # noqa: E402
from tests.ling_variants import Fits  # noqa: E402

CONFIG = replace(Config.tiny(), context=128, request=64, drafts=2)
SCHEDULE = torch.tensor([2, 0, 1, 2, 1])


class Run:
    def __init__(self) -> None:
        self.parts = Parts()
        self._device = StreamThread()
        loop = Loop(CONFIG, Weights(0, "cpu", torch.float32), SCHEDULE)
        self.scheduler = Scheduler(self._device, loop, Switch(), self.parts)

    def steps(self, count: int) -> list[int]:
        """What so many steps give."""
        before = len(self.scheduler.tokens)
        for _ in range(count):
            self.scheduler.step()
        self.scheduler.finish()
        return self.scheduler.tokens[before:]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._device.close()


@pytest.fixture(scope="module")
def plain() -> list[int]:
    with Run() as run:
        return run.steps(12)


def test_a_switch_between_two_steps_leaves_the_sequence_as_it_is(plain: list[int]) -> None:
    fit = Fits(shifted=False)
    with Run() as run:
        said = run.steps(4)
        with run.parts.replaced(frozenset({"a"}), fit):
            said += run.steps(4)
        said += run.steps(4)
    assert said == plain
    assert fit.made == [frozenset({"a"})]


def test_what_is_replaced_is_replaced_until_the_end_of_it(plain: list[int]) -> None:
    with Run() as run:
        first = run.steps(3)
        with run.parts.replaced(frozenset({"a"}), Fits(shifted=True)):
            second = run.steps(1)
        assert first + second != plain[: len(first + second)]
        run.scheduler.rewind()
        assert run.steps(12) == plain


def test_what_was_captured_once_is_used_again() -> None:
    fit = Fits(shifted=True)
    with Run() as run:
        for _ in range(2):
            with run.parts.replaced(frozenset({"a"}), fit):
                run.scheduler.rewind()
                shifted = run.steps(2)
                with run.parts.replaced(frozenset({"b"}), fit):
                    run.scheduler.rewind()
                    assert run.steps(2) == shifted
            run.steps(1)
    assert fit.made == [frozenset({"a"}), frozenset({"a", "b"})]


def test_two_passes_may_want_the_same_part() -> None:
    parts, fit = Parts(), Fits(shifted=False)
    with parts.replaced(frozenset({"a", "b"}), fit):
        with parts.replaced(frozenset({"a"}), fit):
            assert parts.names == {"a", "b"}
        assert parts.names == {"a", "b"}
    assert parts.names == frozenset()
