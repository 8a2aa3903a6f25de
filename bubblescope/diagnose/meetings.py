"""Which operations of several devices are one collective, and who came late to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.collectives import Collective
from bubblescope.diagnose.model import median_ns
from bubblescope.timeline import DeviceOps
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

DOUBT = 20
"""Where more than one match in so many is impossible, none is believed."""


@dataclass(frozen=True, slots=True, eq=False)
class Meetings:
    """Collectives that were recorded on two devices or more; row i is one of them.

    member: shape (n, devices), the operation (row of `device_ops`) of each device, -1 for none.
    shift: ns to add to the times of each device, so that none of these ends before another begins;
    0 wherever the clocks allow it. Of those that had to be moved, the ends are laid together.
    why_not: why nothing could be matched; "" where something was.
    """

    member: Int
    shift: Int
    why_not: str

    def times(self, column: Int) -> Int:
        """A column of `device_ops` on the common clock, shape (n, devices); 0 for none."""
        known = self.member >= 0
        return np.where(known, column[np.maximum(self.member, 0)] + self.shift, 0)

    def arrivals(self, ops: DeviceOps) -> tuple[Int, Int, Int]:
        """When the last device came, when the one before it, and which it was; each shape (n,)."""
        start = np.where(self.member >= 0, self.times(ops.start), np.iinfo(np.int64).min)
        order = np.argsort(start, axis=1, kind="stable")
        rows = np.arange(len(start))
        last, before = order[:, -1], order[:, -2]
        return start[rows, last], start[rows, before], last


def find(ops: DeviceOps, rows: Int, kind: Int, device: Int, devices: int) -> Meetings:
    """Match collectives of the kinds in which every rank waits for all.

    By group and number where both were recorded; else by their order in the group, each kind for
    itself, recordings that begin at different times being laid together by where their ends fit.

    Args:
        ops: Device operations of all ranks.
        rows: Those that communicate, rising.
        kind: What each of them does, a Collective.
        device: The device of each, an index.
        devices: How many there are.
    """
    none = np.full((0, devices), -1, np.int64)
    still = np.zeros(devices, np.int64)
    waits = np.array([Collective(k).waits_for_all for k in kind.tolist()], np.bool_)
    if len(np.unique(device[waits])) < 2:
        return Meetings(none, still, "")
    rows, kind, device = rows[waits], kind[waits], device[waits]
    group = ops.group.codes[rows].astype(np.int64)
    found = []
    for key in np.unique(group * 16 + kind).tolist():
        mine = group * 16 + kind == key
        found.append(_match(ops, rows[mine], device[mine], devices))
    member = np.concatenate(found)
    if not len(member):
        return Meetings(none, still, "no collective of one device fits any of another's")
    shift = _shifts(ops, member)
    possible = _possible(ops, member, shift)
    if DOUBT * (~possible).sum() > len(member):
        share = f"{np.count_nonzero(~possible):,} of {len(member):,}"
        return Meetings(
            none, still, f"by their order, {share} would end on one device before all had begun"
        )
    return Meetings(member[possible], shift, "")


def _match(ops: DeviceOps, rows: Int, device: Int, devices: int) -> Int:
    """One group and kind: the members of each collective, shape (n, devices), two at least."""
    each = [rows[device == d] for d in range(devices)]
    there = [d for d in range(devices) if len(each[d])]
    if len(there) < 2:
        return np.full((0, devices), -1, np.int64)
    place = _numbered(ops, each, there)
    if place is None:
        # The device that was recorded for longest: every other one's fit somewhere in its.
        most = max(there, key=lambda d: len(each[d]))
        place = {d: _offset(ops, each[most], each[d]) + np.arange(len(each[d])) for d in there}
    low = min(int(place[d].min()) for d in there)
    size = max(int(place[d].max()) for d in there) - low + 1
    member = np.full((size, devices), -1, np.int64)
    for d in there:
        member[place[d] - low, d] = each[d]
    return np.asarray(member[(member >= 0).sum(axis=1) >= 2])


def _numbered(ops: DeviceOps, each: list[Int], there: list[int]) -> dict[int, Int] | None:
    """The place of each by its recorded number; None where some have none, or share one."""
    numbers = {d: ops.sequence[each[d]] for d in there}
    if any((n < 0).any() or len(np.unique(n)) < len(n) for n in numbers.values()):
        return None
    known = np.unique(np.concatenate(list(numbers.values())))
    return {d: np.searchsorted(known, n) for d, n in numbers.items()}


def _offset(ops: DeviceOps, most: Int, rows: Int) -> int:
    """Which of `most` the first of `rows` is: the place that brings most ends together."""
    if len(most) == len(rows):
        return 0
    ends, mine = ops.end[most], ops.end[rows]
    after = np.clip(np.searchsorted(ends, mine), 1, len(ends) - 1) if len(ends) > 1 else mine * 0
    before = np.maximum(after - 1, 0)
    nearest = np.where(mine - ends[before] <= ends[after] - mine, before, after)
    values, counts = np.unique(nearest - np.arange(len(rows)), return_counts=True)
    return int(values[np.argmax(counts)])


def _shifts(ops: DeviceOps, member: Int) -> Int:
    """By how much each device's clock must be moved to fit those before it; mostly by nothing."""
    devices = member.shape[1]
    shift = np.zeros(devices, np.int64)
    for d in range(1, devices):
        pairs = [member[(member[:, d] >= 0) & (member[:, o] >= 0)][:, [o, d]] for o in range(d)]
        other = int(np.argmax([len(p) for p in pairs]))
        theirs, mine = pairs[other].T
        if not len(mine):
            continue
        low = int((ops.start[theirs] + shift[other] - ops.end[mine]).max())
        high = int((ops.end[theirs] + shift[other] - ops.start[mine]).min())
        if not low <= 0 <= high:
            shift[d] = median_ns(ops.end[theirs] + shift[other] - ops.end[mine]) or 0
    return shift


def _possible(ops: DeviceOps, member: Int, shift: Int) -> Mask:
    """Which collectives begin on every device before they end on any."""
    known = member >= 0
    at = np.maximum(member, 0)
    far = np.iinfo(np.int64).max
    last = np.where(known, ops.start[at] + shift, -far).max(axis=1)
    ended = np.where(known, ops.end[at] + shift, far).min(axis=1)
    return np.asarray(last <= ended)
