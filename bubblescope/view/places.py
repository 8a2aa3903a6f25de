"""Where findings are: the bubbles that each is about, and who each bubble is charged to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose import launches, sites
from bubblescope.diagnose import reads as find_reads
from bubblescope.diagnose.findings import node_level_calls
from bubblescope.diagnose.launches import Launches
from bubblescope.diagnose.model import Diagnosis, Doing, Finding, Part, ReadSite
from bubblescope.diagnose.price import Charges, charges, late_time
from bubblescope.diagnose.reads import Reads
from bubblescope.diagnose.work import QueuedWork
from bubblescope.timeline import Coded, Timeline
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int
from bubblescope.timeline.threads import Threads

_PARTS = {part.label: part for part in Part}


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """One row a finding in a bubble, ns of it: those of a finding add up to its idle.

    finding: place in the diagnosis. device: position in the diagnosis. bubble: row of that device's
    Bubbles. Rows are ordered by finding, device and bubble.
    """

    finding: Int
    device: Int
    bubble: Int
    ns: Int


@dataclass(frozen=True, slots=True, eq=False)
class Reasons:
    """What a diagnosis knows of single reads and bubbles, which its figures only sum up.

    waited: of each read, whether it made its thread late. site: place of its ReadSite in the
    diagnosis, -1 outside the window. charged: what each read is charged with.
    """

    launches: Launches
    reads: Reads
    waited: Mask
    site: Int
    charged: Charges
    places: Places


def find(timeline: Timeline, diagnosis: Diagnosis) -> Reasons:
    """Join the recording again, by the rules of the diagnosis, and keep every row."""
    joined = launches.join(timeline)
    threads = Threads(timeline)
    reads = find_reads.find(timeline, joined, QueuedWork(timeline, joined), threads)
    shift = diagnosis.clocks.shift
    waited = reads.waited(shift)
    charged = charges(
        reads,
        waited,
        [
            late_time(d.pieces, d.bubbles, threads.of_call, joined.begin, n, shift)
            for n, d in enumerate(diagnosis.devices)
        ],
    )
    site = np.full(len(reads.call), -1, np.int64)
    for place in sites.places(timeline, reads, threads):
        site[place.rows] = _same(diagnosis.reads, place.name, place)
    return Reasons(
        joined, reads, waited, site, charged, _places(timeline, diagnosis, joined, site, charged)
    )


def _same(reads: tuple[ReadSite, ...], call: str, place: sites.Place | Finding) -> int:
    """Place in `reads` of the one of that call at that place, -1 where it is not there."""
    for number, read in enumerate(reads):
        if (read.name, read.site) == (call, place.site) and (
            place.site is not None or read.within == place.within
        ):
            return number
    return -1


def _places(
    timeline: Timeline, diagnosis: Diagnosis, joined: Launches, site: Int, charged: Charges
) -> Places:
    node_level = node_level_calls(timeline, joined)
    names = timeline.host_calls.name
    columns: list[tuple[Int, Int, Int, Int]] = []
    for number, finding in enumerate(diagnosis.findings):
        device, bubble, ns = _idle_of(finding, diagnosis, names, node_level, site, charged)
        keys, at = np.unique(np.stack([device, bubble]), axis=1, return_inverse=True)
        sums = np.zeros(keys.shape[1], np.int64)
        np.add.at(sums, at.reshape(-1), ns)
        columns.append((np.full(len(sums), number), keys[0], keys[1], sums))
    if not columns:
        return Places(*(np.zeros(0, np.int64) for _ in range(4)))
    return Places(*(np.concatenate(c) for c in zip(*columns, strict=True)))


def _idle_of(
    finding: Finding,
    diagnosis: Diagnosis,
    names: Coded,
    node_level: Mask,
    site: Int,
    charged: Charges,
) -> tuple[Int, Int, Int]:
    """Device, bubble and idle of every stretch that a finding is about."""
    if finding.kind == "blocking read":
        wanted = _same(diagnosis.reads, finding.call, finding)
        mine = site[charged.read] == wanted if wanted >= 0 else np.zeros(len(charged.read), bool)
        return charged.device[mine], charged.bubble[mine], charged.ns[mine]
    found: list[tuple[Int, Int, Int]] = []
    for number, device in enumerate(diagnosis.devices):
        pieces, bubbles = device.pieces, device.bubbles
        if finding.kind == Doing.ALLOCATOR.label:
            mine = (pieces.part == Part.HOST_GAP) & (pieces.doing == Doing.ALLOCATOR)
        else:
            mine = pieces.part == _PARTS.get(finding.kind, -1)
        if finding.kind == Part.LAUNCH_CALL.label:
            launch = bubbles.launch[pieces.bubble]
            called = names.where(lambda n: n == finding.call)
            mine &= called[launch] & (node_level[launch] == (not finding.ranked))
        rows = np.flatnonzero(mine)
        found.append(
            (
                np.full(len(rows), number),
                pieces.bubble[rows],
                (pieces.end - pieces.start)[rows],
            )
        )
    device_rows, bubble, ns = (np.concatenate(c) for c in zip(*found, strict=True))
    return device_rows, bubble, ns
