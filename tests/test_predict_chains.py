"""Earliest times in chains and edges, against a plain loop over nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubblescope.errors import BubblescopeError
from bubblescope.predict.chains import NEVER_BEFORE, Chains
from bubblescope.timeline.tables import Int


def ints(*values: int) -> Int:
    return np.array(values, np.int64)


def plain(
    lengths: list[int], weight: Int, floor: Int, edges: list[tuple[int, int, int]]
) -> list[int] | None:
    """The earliest times, node by node as soon as all it needs is known; None in a circle."""
    starts = {sum(lengths[:i]) for i in range(len(lengths))}
    time: dict[int, int] = {}
    nodes = sum(lengths)
    for _ in range(nodes):
        for node in range(nodes):
            sources = [s for s, t, _ in edges if t == node]
            if node not in starts:
                sources.append(node - 1)
            if node in time or any(s not in time for s in sources):
                continue
            least = [int(floor[node])]
            if node not in starts:
                least.append(time[node - 1] + int(weight[node]))
            least += [time[s] + lag for s, t, lag in edges if t == node]
            time[node] = max(least)
    return [time[n] for n in range(nodes)] if len(time) == nodes else None


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], Int, Int, list[tuple[int, int, int]]]:
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    nodes = sum(lengths)
    small = st.integers(0, 20)
    numbers = st.lists(small, min_size=nodes, max_size=nodes)
    weight, floor = np.array(draw(numbers), np.int64), np.array(draw(numbers), np.int64)
    if not nodes:
        return lengths, weight, floor, []
    node = st.integers(0, nodes - 1)
    edge = st.tuples(node, node, small).filter(lambda e: e[0] != e[1])
    return lengths, weight, floor, draw(st.lists(edge, max_size=8)) if nodes > 1 else []


@settings(max_examples=400, deadline=None)
@given(problems())
def test_as_a_plain_loop_finds_them(
    problem: tuple[list[int], Int, Int, list[tuple[int, int, int]]],
) -> None:
    lengths, weight, floor, edges = problem
    source, target, lag = (ints(*(e[i] for e in edges)) for i in range(3))
    chains = Chains(ints(*lengths), source, target)
    expected = plain(lengths, weight, floor, edges)
    if expected is None:
        with pytest.raises(BubblescopeError, match="circle"):
            chains.solve(weight, floor, lag)
    else:
        assert chains.solve(weight, floor, lag).tolist() == expected


def test_one_chain_is_a_running_sum() -> None:
    chains = Chains(ints(4), ints(), ints())
    floor = ints(100, NEVER_BEFORE, NEVER_BEFORE, 300)
    assert chains.solve(ints(9, 10, 20, 5), floor, ints()).tolist() == [100, 110, 130, 300]


def test_an_edge_holds_and_a_switched_off_one_does_not() -> None:
    # Node 1 of the first chain holds node 3, the second of the other chain.
    chains = Chains(ints(2, 2), ints(1), ints(3))
    weight, floor = ints(0, 50, 0, 10), ints(0, NEVER_BEFORE, 0, NEVER_BEFORE)
    assert chains.solve(weight, floor, ints(7)).tolist() == [0, 50, 0, 57]
    assert chains.solve(weight, floor, ints(NEVER_BEFORE)).tolist() == [0, 50, 0, 10]


def test_chains_that_wait_for_each_other_in_turn() -> None:
    # 0 -> 4, 4 -> 1, 1 -> 5, 5 -> 2: each step of a ladder takes 3.
    source, target = ints(0, 4, 1, 5), ints(4, 1, 5, 2)
    chains = Chains(ints(3, 3), source, target)
    floor = np.full(6, NEVER_BEFORE, np.int64)
    floor[0] = floor[3] = 0
    assert chains.solve(ints(0, 1, 1, 0, 1, 1), floor, ints(3, 3, 3, 3)).tolist() == [
        0,
        6,
        12,
        0,
        3,
        9,
    ]


def test_a_circle_is_refused() -> None:
    chains = Chains(ints(2, 2), ints(1, 3), ints(2, 0))
    with pytest.raises(BubblescopeError, match="circle"):
        chains.solve(ints(0, 1, 0, 1), ints(0, 0, 0, 0), ints(1, 1))
