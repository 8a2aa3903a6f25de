"""What a diagnosis says of communication: frozen data, times in ns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CollectiveKind:
    """All communication of one kind, over all devices.

    total_ns: sum of durations; median_ns, max_ns: of one. waiting_ns: how much of total_ns passed
    before the last device had come; None where that is not known.
    """

    kind: str
    calls: int
    total_ns: int
    median_ns: int
    max_ns: int
    waiting_ns: int | None


@dataclass(frozen=True, slots=True)
class Exchange:
    """Time in communication, of one device or summed over devices.

    busy_ns: union of all operations that communicate. hidden_ns: what of it other work covers;
    exposed_ns: the rest. waiting_ns: what of busy_ns only waited for other ranks;
    exposed_waiting_ns: what of exposed_ns did. Both None where other ranks were not matched.
    *_per_step: medians over counted steps, None without steps.
    """

    calls: int
    busy_ns: int
    hidden_ns: int
    exposed_ns: int
    waiting_ns: int | None
    exposed_waiting_ns: int | None
    busy_ns_per_step: int | None
    hidden_ns_per_step: int | None
    exposed_ns_per_step: int | None
    exposed_waiting_ns_per_step: int | None


@dataclass(frozen=True, slots=True)
class Activity:
    """What a launching thread did in host gaps: how, as in model.Doing, the record's name, ns."""

    doing: str
    name: str
    ns: int


@dataclass(frozen=True, slots=True)
class Lateness:
    """How one device came to the collectives that it shares with others.

    met: collectives matched. last: how often it was the last to come. late_ns: by how much in all,
    against the one before it: what the others would have gained, had only it been in time.
    others_waited_ns: how long all others together waited for it. waited_ns: how long it waited
    for others. shift_ns: what was added to its times to compare them with those of other ranks.
    during_ns: what its device did while it was late: "busy" or a part of a bubble -> ns; doing:
    what its host did in the host gaps of that time, the longest first.
    """

    rank: int
    device: int
    met: int
    last: int
    late_ns: int
    others_waited_ns: int
    waited_ns: int
    shift_ns: int
    during_ns: dict[str, int]
    doing: tuple[Activity, ...]


@dataclass(frozen=True, slots=True)
class Communication:
    """Communication between devices.

    total: sums over devices. devices: of each, in the order of the diagnosis. late: of each that
    was matched, the one that others waited for longest first; empty where nothing was. note: what
    waiting rests on, or why nothing is said of it.
    """

    total: Exchange
    devices: tuple[Exchange, ...]
    kinds: tuple[CollectiveKind, ...]
    late: tuple[Lateness, ...]
    note: str
