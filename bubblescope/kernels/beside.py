"""Puts what other tools measured beside the rows of a table, by the kernels' names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from bubblescope.compare.families import family
from bubblescope.kernels.asked import BYTES, DURATION, PEAK, Answer, Sample
from bubblescope.kernels.model import Dram, DramRun, Kernel, Kernels, Nsight, NsightRun
from bubblescope.kernels.names import function
from bubblescope.kernels.ncu import Launch

T = TypeVar("T")


def with_nsight(table: Kernels, answer: Answer, steps: int) -> Kernels:
    """The table with nsight-python's durations.

    Args:
        table: of the same target, recorded at node level.
        answer: what nsight-python measured on CUPTI.
        steps: how many steps it measured.
    """
    key = family if table.by == "family" else str
    measured = {
        name: _nsight([sample.values[DURATION] for sample in group])
        for name, group in _grouped(answer.samples, lambda sample: key(sample.kernel)).items()
    }
    rows = tuple(
        replace(row, nsight=measured.get(row.name)) if row.kind == "kernel" else row
        for row in table.rows
    )
    unseen = [row for row in rows if row.kind == "kernel" and row.nsight is None]
    run = NsightRun(
        version=answer.nsight,
        cupti=answer.cupti,
        steps=steps,
        unmatched=_unmatched(measured, rows),
        unseen_ns=sum(row.total_ns for row in unseen) // max(table.steps, 1),
    )
    return replace(table, rows=rows, nsight=run)


def _nsight(values: Sequence[tuple[float, float, float]]) -> Nsight:
    means, least, greatest = zip(*values, strict=True)
    return Nsight(
        calls_per_step=float(len(values)),
        mean_ns=round(sum(means) / len(means)),
        min_ns=round(min(least)),
        max_ns=round(max(greatest)),
    )


def with_dram(table: Kernels, launches: Sequence[Launch], version: str) -> Kernels:
    """The table with the DRAM throughput that ncu counted, names being whole ones."""
    key = family if table.by == "family" else str
    counted = {
        name: _dram(group) for name, group in _grouped(launches, lambda x: key(x.kernel)).items()
    }
    return _joined(table, counted, lambda row: row.name, version, f"ncu {version}", len(launches))


def with_dram_of_nsight(table: Kernels, answer: Answer, version: str) -> Kernels:
    """The same of nsight-python on ncu.

    It names functions only: a row that shares its function with another gets no figure.
    """
    launches = [_launch(sample) for sample in answer.samples]
    counted = {
        name: _dram(group)
        for name, group in _grouped(launches, lambda x: function(x.kernel)).items()
    }
    names = [function(row.name) for row in table.rows if row.kind == "kernel"]
    alone = {name for name in names if names.count(name) == 1}
    usable = {name: dram for name, dram in counted.items() if name in alone}
    joined = _joined(
        table,
        usable,
        lambda row: function(row.name),
        version,
        f"nsight-python {answer.nsight} on ncu {version}",
        len(launches),
    )
    shared = tuple(sorted(set(counted) - alone))
    assert joined.dram is not None
    return replace(joined, dram=replace(joined.dram, unmatched=shared))


def _joined(
    table: Kernels,
    counted: Mapping[str, Dram],
    name: Callable[[Kernel], str],
    version: str,
    collector: str,
    launches: int,
) -> Kernels:
    rows = tuple(
        replace(row, dram=counted.get(name(row))) if row.kind == "kernel" else row
        for row in table.rows
    )
    unmatched = tuple(sorted(set(counted) - {name(row) for row in rows if row.kind == "kernel"}))
    return replace(table, rows=rows, dram=DramRun(version, collector, launches, unmatched))


def _dram(launches: Sequence[Launch]) -> Dram:
    """Of several launches: bytes over time, and shares of the peak weighted by time."""
    ns = np.array([launch.ns for launch in launches])
    total = float(ns.sum())
    moved = sum(launch.ns * launch.bytes_per_second for launch in launches)
    peaks = [(launch.ns, launch.percent_of_peak) for launch in launches]
    known = [(weight, peak) for weight, peak in peaks if peak is not None]
    weights = sum(weight for weight, _ in known)
    return Dram(
        launches=len(launches),
        bytes_per_second=moved / total if total else 0.0,
        percent_of_peak=sum(w * p for w, p in known) / weights if weights else None,
        ns=round(float(np.median(ns))),
    )


def _launch(sample: Sample) -> Launch:
    ns, moved = sample.values[DURATION][0], sample.values[BYTES][0]
    peak = sample.values[PEAK][0] if PEAK in sample.values else None
    return Launch(sample.kernel, ns, 1e9 * moved / ns if ns else 0.0, peak)


def _unmatched(measured: Mapping[str, Any], rows: Iterable[Kernel]) -> tuple[str, ...]:
    return tuple(sorted(set(measured) - {row.name for row in rows if row.kind == "kernel"}))


def _grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> dict[Any, list[T]]:
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
