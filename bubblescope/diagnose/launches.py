"""Which host call launched which operation, and which launches left no record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.timeline import DeviceOps, HostCalls, Timeline, api
from bubblescope.timeline.intervals import Mask, runs
from bubblescope.timeline.tables import Int

NEVER = np.iinfo(np.int64).min
"""A time before all others: stands for "no such time"."""


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """The joins between the two sides.

    of_op: row of `host_calls` that launched each operation, -1 where none is known.
    begin, end: that call's times, NEVER where none is known. by_graph: launched by a graph launch;
    graph: that, and one of the nodes, not a replay recorded whole.
    owner: a small id of each call's (rank, process); op_owner: of each operation's.
    lost: rows of launches that left no operation. incomplete: operations of replays of which
    records are missing.
    """

    of_op: Int
    begin: Int
    end: Int
    by_graph: Mask
    graph: Mask
    owner: Int
    op_owner: Int
    lost: Int
    incomplete: Mask


def join(timeline: Timeline) -> Launches:
    """Join operations to launches by (rank, process, correlation)."""
    ops, calls = timeline.device_ops, timeline.host_calls
    owner, op_owner = _owners(calls, ops)
    rows = match_calls(calls, owner, op_owner, ops.correlation)
    known = rows >= 0
    is_graph = calls.name.where(api.is_graph_launch)
    by_graph = np.zeros(len(ops), np.bool_)
    by_graph[known] = is_graph[rows[known]]
    graph = by_graph & ~ops.kind.where(lambda kind: kind == "graph")
    return Launches(
        of_op=rows,
        begin=_at(calls.start, rows),
        end=_at(calls.end, rows),
        by_graph=by_graph,
        graph=graph,
        owner=owner,
        op_owner=op_owner,
        lost=_lost(timeline, owner, op_owner, rows, is_graph),
        incomplete=_incomplete(ops, rows, graph, op_owner),
    )


def match_calls(calls: HostCalls, owner: Int, wanted_owner: Int, correlation: Int) -> Int:
    """Row of the call with each (owner, correlation), -1 where there is none.

    Where several calls share one, a call that launches is preferred, then the earliest.
    """
    usable = np.flatnonzero(calls.correlation >= 0)
    if not len(usable) or not len(correlation):
        return np.full(len(correlation), -1, np.int64)
    low = int(min(calls.correlation[usable].min(), correlation.min()))
    span = int(max(calls.correlation[usable].max(), correlation.max())) - low + 1
    owners = int(max(owner.max(), wanted_owner.max())) + 1
    if span * owners < 1 << 62:
        keys = owner[usable] * span + (calls.correlation[usable] - low)
        wanted = wanted_owner * span + (correlation - low)
    else:  # ids as large as hashes: number them first
        both = np.concatenate([calls.correlation[usable], correlation])
        numbers = np.unique(both, return_inverse=True)[1].astype(np.int64)
        keys = owner[usable] * len(both) + numbers[: len(usable)]
        wanted = wanted_owner * len(both) + numbers[len(usable) :]
    keys_sorted = keys
    if not (keys[1:] > keys[:-1]).all():
        launches = calls.name.where(
            lambda n: (
                api.is_kernel_launch(n) or api.is_graph_launch(n) or api.is_copy(n) or "Memset" in n
            )
        )
        order = np.lexsort((calls.start[usable], ~launches[usable], keys))
        usable, keys_sorted = usable[order], keys[order]
    place = np.searchsorted(keys_sorted, wanted, "left")
    place[place == len(keys_sorted)] = 0
    hit = (keys_sorted[place] == wanted) & (wanted_owner >= 0) & (correlation >= 0)
    return np.where(hit, usable[place], -1)


def _at(times: Int, rows: Int) -> Int:
    result = np.full(len(rows), NEVER, np.int64)
    known = rows >= 0
    result[known] = times[rows[known]]
    return result


def _owners(calls: HostCalls, ops: DeviceOps) -> tuple[Int, Int]:
    """Small ids for (rank, process), the same on both sides; -1 for operations of no call's."""
    first, length = runs(calls.rank, calls.process)  # rows are ordered by these
    ids = {(int(calls.rank[i]), int(calls.process[i])): n for n, i in enumerate(first.tolist())}
    owner = np.repeat(np.arange(len(first)), length)
    op_owner = np.full(len(ops), -1, np.int64)
    for (rank, process), number in ids.items():
        op_owner[(ops.rank == rank) & (ops.process == process)] = number
    return owner, op_owner


def _lost(timeline: Timeline, owner: Int, op_owner: Int, rows: Int, is_graph: Mask) -> Int:
    """Kernel and graph launches that left no operation, but for those of a stream capture.

    Of a launch without a correlation id nobody can tell, nor of any where operations have none.
    """
    calls = timeline.host_calls
    if not (timeline.device_ops.correlation >= 0).any():
        return np.zeros(0, np.int64)
    launching = calls.name.where(api.is_kernel_launch) | is_graph
    lost = launching & (calls.correlation >= 0)
    lost[rows[rows >= 0]] = False
    if not lost.any():
        return np.zeros(0, np.int64)
    # A second record of a launch (the driver's beside the runtime's) is not another launch.
    lost &= ~_within_launch(calls, launching)
    found = np.flatnonzero(lost)
    ids = np.concatenate([calls.correlation[found], timeline.device_ops.correlation])
    numbers = np.unique(ids, return_inverse=True)[1].reshape(-1)
    owners = np.concatenate([owner[found], op_owner])
    keys = numbers * (int(owner.max()) + 2) + owners + 1
    has_op = np.isin(keys[: len(found)], keys[len(found) :])
    # Where the process of an operation is unknown, any launch of its rank and id may be its own.
    ranks = np.concatenate([calls.rank[found], timeline.device_ops.rank])
    keys = numbers * (int(ranks.max()) + 2) + ranks + 1
    has_op |= np.isin(keys[: len(found)], keys[len(found) :][op_owner < 0])
    lost[found[has_op]] = False
    begin = calls.name.where(lambda n: "StreamBeginCapture" in n)
    end = calls.name.where(lambda n: "StreamEndCapture" in n)
    if begin.any():
        # Balance of captures begun and ended so far on the same thread (rows are ordered).
        balance = np.cumsum(begin.astype(np.int64) - end)
        first, length = runs(calls.rank, calls.process, calls.thread)
        before = np.where(first > 0, balance[first - 1], 0)
        lost &= (balance - np.repeat(before, length)) <= 0
    return np.flatnonzero(lost)


def _within_launch(calls: HostCalls, launching: Mask) -> Mask:
    """Calls inside an earlier launch call of their thread."""
    within = np.zeros(len(calls), np.bool_)
    ends = np.where(launching, calls.end, NEVER)
    first, length = runs(calls.rank, calls.process, calls.thread)
    for f, n in zip(first.tolist(), length.tolist(), strict=True):  # threads, not calls
        reach = np.maximum.accumulate(ends[f : f + n])
        within[f + 1 : f + n] = calls.end[f + 1 : f + n] <= reach[:-1]
    return within


def _incomplete(ops: DeviceOps, rows: Int, graph: Mask, op_owner: Int) -> Mask:
    """Operations of graph replays that hold fewer operations than their graph."""
    nodes = np.flatnonzero(graph)
    result = np.zeros(len(ops), np.bool_)
    if not len(nodes):
        return result
    nodes = nodes[np.argsort(rows[nodes], kind="stable")]  # by replay, in time order
    first, size = runs(rows[nodes])
    identified = ops.graph[nodes[first]] >= 0
    short = np.zeros(len(first), np.bool_)
    if identified.any():
        keys = np.stack([op_owner[nodes[first]], ops.graph[nodes[first]]], axis=1)[identified]
        group = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
        most = np.zeros(int(group.max()) + 1, np.int64)
        np.maximum.at(most, group, size[identified])
        short[identified] = size[identified] < most[group]
    anonymous = np.flatnonzero(~identified)
    if len(anonymous):
        # One number for (owner, node id, name): replays of other processes never look alike.
        symbols = op_owner[nodes] * len(ops.name.values) + ops.name.codes[nodes]
        if (ops.node[nodes] >= 0).any():
            ids, number = np.unique(ops.node[nodes], return_inverse=True)
            symbols = symbols * len(ids) + number.reshape(-1)
            symbols = np.unique(symbols, return_inverse=True)[1].reshape(-1)
        by_node = (ops.node[nodes] >= 0)[first[anonymous]]
        short[anonymous] = _shorter_forms(symbols, first[anonymous], size[anonymous], by_node)
    result[nodes] = np.repeat(short, size)
    return result


def _shorter_forms(symbols: Int, first: Int, size: Int, by_node: Mask) -> Mask:
    """Replays without a graph id that are a shorter form of another replay.

    A shorter form has no operation more often than the other. Where nodes have ids, that is proof.
    Where only names are known, small graphs of the same kernels look alike: it must also begin or
    end as the other does, and the other must be the more frequent one.
    """
    sequences: dict[bytes, list[int]] = {}
    for replay, (begin, length) in enumerate(zip(first.tolist(), size.tolist(), strict=True)):
        sequences.setdefault(symbols[begin : begin + length].tobytes(), []).append(replay)
    short = np.zeros(len(first), np.bool_)
    kinds = [(np.frombuffer(key, symbols.dtype), replays) for key, replays in sequences.items()]
    # Where each replay lost other records there are as many kinds as replays: the whole one is
    # among the most frequent and longest.
    kinds.sort(key=lambda kind: (-len(kind[1]), -len(kind[0])))
    for sequence, replays in kinds:
        for other, others in kinds[:64]:
            if len(other) <= len(sequence):
                continue
            same_end = sequence[0] == other[0] or sequence[-1] == other[-1]
            if not by_node[replays[0]] and not (same_end and len(others) > len(replays)):
                continue
            width = int(max(sequence.max(), other.max())) + 1
            fits = np.bincount(sequence, minlength=width) <= np.bincount(other, minlength=width)
            if fits.all():
                short[replays] = True
                break
    return short
