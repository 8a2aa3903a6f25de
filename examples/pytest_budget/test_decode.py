"""Budgets on a decode loop: the first two tests pass, the last two fail and say where.

    pytest examples/pytest_budget

The loop takes up each step's results a step late, which is one blocking read a step. As it is, it
makes a second one: it reads the sequence length back before each step. The pass seq-len-sync takes
that out.
"""

from __future__ import annotations

from typing import Any

import pytest

from bubblescope.targets.ling.target import Ling

fixed = pytest.mark.parametrize("passes", [["seq-len-sync"]], ids=["seq-len-sync"])


@fixed
@pytest.mark.bubbles(max_reads=1, warmup=10)
def test_marked(loop: Ling, bubbles: Any) -> None:
    """A marked test: each step is ended by `bubbles.step()`."""
    for _ in range(20):
        loop.step()
        bubbles.step()


@fixed
def test_block(loop: Ling, bubbles: Any) -> None:
    """Only what runs in the block is recorded."""
    loop.step()
    with bubbles(max_reads_in_all=3, max_launches=20):  # without step(): all of it is one
        for _ in range(3):
            loop.step()


@pytest.mark.bubbles(max_reads=1, warmup=10)
def test_marked_with_the_read_back(loop: Ling, bubbles: Any) -> None:
    """Fails: two reads a step."""
    for _ in range(20):
        loop.step()
        bubbles.step()


def test_block_with_the_read_back(loop: Ling, bubbles: Any) -> None:
    """Fails: the block makes six reads."""
    loop.step()
    with bubbles(max_reads_in_all=3):
        for _ in range(3):
            loop.step()
