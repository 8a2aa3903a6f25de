"""Reads by place, with their figures per step and in all."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose import sites
from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import Markers, ReadSite, StepTable, median_ns
from bubblescope.diagnose.price import Prices
from bubblescope.diagnose.reads import Reads
from bubblescope.diagnose.steps import marker_of
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int


def find(
    places: list[sites.Place],
    launches: Launches,
    reads: Reads,
    waited: Mask,
    prices: Prices,
    markers: Markers | None,
    steps: StepTable,
    window: tuple[int | None, int | None] | None,
    devices: int,
) -> list[tuple[ReadSite, ...]]:
    """Read sites over all devices, then of each device; the most exposed first."""
    step, number = _steps_of(reads, launches, markers, steps)
    inside = np.ones(len(step), np.bool_)
    if window is not None and len(steps.number):
        inside = number >= (0 if window[0] is None else window[0])
        if window[1] is not None:
            inside &= number < window[1]
    result: list[tuple[ReadSite, ...]] = []
    for device in (None, *range(devices)):
        exposed = prices.exposed.sum(1) if device is None else prices.exposed[:, device]
        after = prices.after.sum(1) if device is None else prices.after[:, device]
        found = []
        for place in places:
            rows = place.rows[inside[place.rows]]
            if len(rows):
                found.append(
                    _site(place, rows, reads, waited, exposed, after, prices.closed, step, steps)
                )
        found.sort(key=lambda s: (-s.exposed_idle_ns, -s.blocked_ns, s.name))
        result.append(tuple(found))
    return result


def _steps_of(
    reads: Reads, launches: Launches, markers: Markers | None, steps: StepTable
) -> tuple[Int, Int]:
    """The step that each read was called in: its row in `steps` (-1: none), and its number."""
    none = np.full(len(reads.call), -1, np.int64)
    if markers is None or not len(steps.number):
        return none, none
    marker = marker_of(markers, launches.owner[reads.call], reads.begin)
    number = np.where(
        marker >= 0, markers.number[np.maximum(marker, 0)], int(markers.number[0]) - 1
    )
    row = np.searchsorted(steps.number, number)
    row[row == len(steps.number)] = 0
    return np.where(steps.number[row] == number, row, -1), number


def _site(
    place: sites.Place,
    rows: Int,
    reads: Reads,
    waited: Mask,
    exposed: Int,
    after: Int,
    closed: Mask,
    step: Int,
    steps: StepTable,
) -> ReadSite:
    blocked = reads.end - reads.begin
    counted = steps.counted()
    calls = _by_step(np.ones(len(rows), np.int64), step[rows], len(steps.number))
    # A read in a step that the recording cut is whole if all that it could expose was recorded;
    # one whose account is still open says nothing per step.
    some = _by_step(closed[rows].astype(np.int64), step[rows], len(steps.number)) > 0
    open_ = _by_step((~closed[rows]).astype(np.int64), step[rows], len(steps.number)) > 0
    priced = (counted | (some & ~steps.outlier & steps.alike())) & ~open_
    if not counted.any() or not priced.any():
        priced = counted

    def per_step(values: Int) -> int | None:
        return median_ns(_by_step(values[rows], step[rows], len(steps.number))[priced])

    return ReadSite(
        name=place.name,
        site=place.site,
        within=place.within,
        under=place.under,
        calls=len(rows),
        waited=int(waited[rows].sum()),
        calls_per_step=float(calls[counted].sum() / counted.sum()) if counted.any() else None,
        blocked_ns=int(blocked[rows].sum()),
        blocked_ns_per_step=per_step(blocked),
        exposed_idle_ns=int(exposed[rows].sum()),
        exposed_idle_ns_per_step=per_step(exposed),
        idle_after_ns=int(after[rows].sum()),
        idle_after_ns_per_step=per_step(after),
    )


def _by_step(values: Int, step: Int, steps: int) -> Int:
    """Sum of the values in each step; those in none are dropped."""
    sums = np.zeros(steps, np.int64)
    np.add.at(sums, step[step >= 0], values[step >= 0])
    return sums
