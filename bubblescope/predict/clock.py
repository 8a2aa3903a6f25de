"""Steps of a replay, measured as the diagnosis measures those of the recording."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose.bubbles import devices
from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import Markers, StepTable
from bubblescope.diagnose.steps import marker_of
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int


@dataclass(frozen=True, slots=True, eq=False)
class _Device:
    """A device's operations, rows [first, stop), and the marker that each belongs to."""

    first: int
    stop: int
    marker: Int


class StepClock:
    """Reads off how long each counted step takes.

    A step begins where the bubble begins that its first operation ends, or with that operation,
    and ends where the next begins. It holds what was launched in it.
    """

    def __init__(
        self, timeline: Timeline, launches: Launches, markers: Markers, steps: StepTable
    ) -> None:
        """From a recording, its markers and the steps of its diagnosis."""
        self.number: Int = steps.number[steps.counted()]
        self._marker_number = markers.number
        self._devices: list[_Device] = []
        for span in devices(timeline.device_ops):
            rows = slice(span.first, span.stop)
            owner = launches.op_owner[rows]
            marker = marker_of(markers, owner, launches.begin[rows])
            marked = owner[(marker > -2) & (owner >= 0)]
            main = np.argmax(np.bincount(marked)) if len(marked) else -1
            marker[(launches.of_op[rows] < 0) | (owner != main)] = -2
            self._devices.append(_Device(span.first, span.stop, marker))

    def each(self, start: Int, end: Int, gone: Mask | None = None) -> tuple[Int, Int]:
        """When each counted step begins and ends on each device, ns; shapes (devices, steps).

        start, end, gone: of the operations of the recording that the clock was made for. Both are
        0 where a device has no operation of a step.
        """
        begins = np.zeros((len(self._devices), len(self.number)), np.int64)
        ends = np.zeros_like(begins)
        for row, device in enumerate(self._devices):
            inside = slice(device.first, device.stop)
            found, begin, until = _device_steps(
                start[inside], end[inside], device.marker, None if gone is None else gone[inside]
            )
            if not len(found):
                continue
            before_all = np.iinfo(np.int64).min
            number = np.where(found < 0, before_all, self._marker_number[np.maximum(found, 0)])
            place = np.searchsorted(number, self.number)
            place[place == len(number)] = 0
            here = number[place] == self.number
            begins[row, here], ends[row, here] = begin[place][here], until[place][here]
        return begins, ends

    def window(self, start: Int, end: Int, gone: Mask | None = None) -> tuple[int, int]:
        """From the first counted step's beginning to the last one's end, on any device; ns."""
        begins, ends = self.each(start, end, gone)
        some = ends > begins
        if not some.any():
            return 0, 0
        return int(begins[some].min()), int(ends[some].max())

    def step_of(self, op: Int) -> Int:
        """The place of the counted step that each operation (row) belongs to, -1 for none."""
        marker = np.concatenate([device.marker for device in self._devices])[op]
        number = self._marker_number[np.maximum(marker, 0)]
        place = np.searchsorted(self.number, number)
        place[place == len(self.number)] = 0
        return np.where((marker >= 0) & (self.number[place] == number), place, -1)

    def lengths(self, start: Int, end: Int, gone: Mask | None = None) -> Int:
        """How long each counted step takes, ns, on the device on which it takes longest.

        0 for a step of which no operation is left.
        """
        begins, ends = self.each(start, end, gone)
        lengths: Int = (ends - begins).max(axis=0, initial=0)
        return lengths


def _device_steps(start: Int, end: Int, marker: Int, gone: Mask | None) -> tuple[Int, Int, Int]:
    """The markers that launched work on one device; where each one's step begins and ends."""
    rows = np.arange(len(start)) if gone is None else np.flatnonzero(~gone)
    rows = rows[np.argsort(start[rows], kind="stable")]
    start, end, marker = start[rows], end[rows], marker[rows]
    if not len(rows):
        return marker, start, end
    until = np.maximum.accumulate(end)
    begin = np.append(start[:1], np.minimum(until[:-1], start[1:]))
    found, first = np.unique(marker, return_index=True)
    found, first = found[found > -2], first[found > -2]
    if not len(found):
        return found, first, first
    begins = np.maximum.accumulate(begin[first])
    following = np.append(begins[1:], until[-1])
    # Two that begin together are one step, that of the later marker, as in the diagnosis.
    return found, begins, following
