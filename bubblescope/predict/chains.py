"""Earliest times in a graph made of chains and of edges between them (max-plus algebra).

A chain is what runs in order: a host thread, a device queue. Along a chain the time of node j is

    t[j] = max(t[j - 1] + weight[j], floor[j], t[source] + lag of each edge into j)

which is a running maximum once the prefix sums of the weights are taken off. So whole stretches of
a chain are found at once, each as long as the nodes that its edges come from are known.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from bubblescope.errors import BubblescopeError
from bubblescope.timeline.intervals import runs
from bubblescope.timeline.tables import Int

NEVER_BEFORE = -(1 << 61)
"""A lower bound that binds nothing, and a lag that makes an edge do nothing. Sums of it and any
time of a recording still fit into int64."""


@dataclass(frozen=True, slots=True)
class _Bundle:
    """The edges from one chain to another, [first, stop) of the ordered ones, by target."""

    source: int
    target: int
    first: int
    stop: int
    single: bool


class Chains:
    """The structure: which nodes are chained, and which edges go where. Made once, solved often.

    Args:
        lengths: nodes of each chain; chains lie one after the other.
        source, target: nodes that each edge joins.
    """

    def __init__(self, lengths: Int, source: Int, target: Int) -> None:
        bounds = np.append(0, np.cumsum(lengths))
        self.nodes = int(bounds[-1])
        self.source, self.target = source, target
        self.first_nodes: Int = bounds[:-1][lengths > 0]
        self._bounds: list[int] = bounds.tolist()
        chain = np.repeat(np.arange(len(lengths)), lengths)
        from_chain, to_chain = chain[source], chain[target]
        order = np.lexsort((source, target, from_chain, to_chain))
        self.order = order
        self._source, self._target = source[order], target[order]
        # The farthest node that each edge of a bundle, or any before it, comes from.
        self._need = self._source.copy()
        self._into: list[list[int]] = [[] for _ in lengths]
        self._out: list[list[int]] = [[] for _ in lengths]
        self._bundles: list[_Bundle] = []
        first, length = runs(to_chain[order], from_chain[order])
        for f, n in zip(first.tolist(), length.tolist(), strict=True):  # pairs of chains
            inside = slice(f, f + n)
            np.maximum.accumulate(self._need[inside], out=self._need[inside])
            c, d = int(from_chain[order[f]]), int(to_chain[order[f]])
            single = bool((np.diff(self._target[inside]) > 0).all())
            self._into[d].append(len(self._bundles))
            if d not in self._out[c]:
                self._out[c].append(d)
            self._bundles.append(_Bundle(c, d, f, f + n, single))

    def solve(self, weight: Int, floor: Int, lag: Int) -> Int:
        """The earliest time of every node.

        Args:
            weight: from the node before on the chain; that of a chain's first node is not used.
            floor: a lower bound of each node, NEVER_BEFORE for none.
            lag: of each edge, in the order given at first; NEVER_BEFORE switches an edge off.

        Raises:
            BubblescopeError: edges wait for each other.
        """
        prefix = np.cumsum(weight)
        time = np.empty(self.nodes, np.int64)
        lags = lag[self.order]
        bounds = self._bounds
        known = bounds[:-1].copy()
        cursor = [b.first for b in self._bundles]
        waiting = deque(range(len(known)))
        queued = [True] * len(known)
        while waiting:
            chain = waiting.popleft()
            queued[chain] = False
            begin, stop = known[chain], self._reach(chain, known, cursor)
            if stop == begin:
                continue
            level = floor[begin:stop].copy()
            for number in self._into[chain]:
                bundle = self._bundles[number]
                first = cursor[number]
                last = first + int(np.searchsorted(self._target[first : bundle.stop], stop, "left"))
                if last > first:
                    at = self._target[first:last] - begin
                    least = time[self._source[first:last]] + lags[first:last]
                    if bundle.single:
                        level[at] = np.maximum(level[at], least)
                    else:
                        np.maximum.at(level, at, least)
                    cursor[number] = last
            level -= prefix[begin:stop]
            if begin > bounds[chain]:
                level[0] = max(level[0], time[begin - 1] - prefix[begin - 1])
            np.maximum.accumulate(level, out=level)
            np.add(level, prefix[begin:stop], out=time[begin:stop])
            known[chain] = stop
            for other in self._out[chain]:
                if not queued[other] and known[other] < bounds[other + 1]:
                    queued[other] = True
                    waiting.append(other)
        if known != bounds[1:]:
            raise BubblescopeError(
                "waits of the recording depend on each other in a circle: nothing can be replayed"
            )
        return time

    def _reach(self, chain: int, known: list[int], cursor: list[int]) -> int:
        """How far a chain can be followed with what is known of the others."""
        stop = self._bounds[chain + 1]
        for number in self._into[chain]:
            bundle = self._bundles[number]
            have = known[bundle.source]
            if have == self._bounds[bundle.source + 1]:
                continue
            first = cursor[number]
            place = first + int(np.searchsorted(self._need[first : bundle.stop], have, "left"))
            if place < bundle.stop:
                stop = min(stop, int(self._target[place]))
        return max(stop, known[chain])
