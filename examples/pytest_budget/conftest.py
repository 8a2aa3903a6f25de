"""The loop under test: the embedded decode loop on its CPU thread, which needs no GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from bubblescope.capture.backend import Backend
from bubblescope.targets.ling.target import Ling
from optimizations.registry import applied


@pytest.fixture
def passes() -> Sequence[str]:
    """None; a test parametrises this to put passes on."""
    return ()


@pytest.fixture
def loop(passes: Sequence[str]) -> Iterator[Ling]:
    """The started loop."""
    target = Ling("cpu")
    with applied(passes, target):
        target.start()
        yield target
        target.stop()


@pytest.fixture
def bubbles_backend(loop: Ling) -> Backend:
    """Record with the CPU thread's own records. On a GPU leave this fixture out."""
    return loop.backends()[0]
