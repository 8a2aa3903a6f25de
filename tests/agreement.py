"""One shape for what `diagnose` and the oracle say, so that tests compare plain values."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from bubblescope.diagnose import Diagnosis, diagnose
from bubblescope.diagnose.model import DeviceDiagnosis, Doing, Part
from tests.oracle import DeviceTruth, Oracle, solve
from tests.synthetic import TraceBuilder

NAMED = (Doing.ALLOCATOR, Doing.CUDA_CALL, Doing.OP, Doing.ANNOTATION, Doing.PYTHON)


def told(trace: TraceBuilder) -> Diagnosis:
    """The diagnosis, after everything that must hold of any has been checked."""
    timeline = trace.timeline()
    d = diagnose(timeline)
    for device in d.devices:
        assert device.busy_ns + sum(device.parts_ns.values()) == device.window_ns
    ours, theirs = said(d), true(solve(timeline))
    assert ours == theirs, f"\n  said: {ours}\n  true: {theirs}"
    return d


def only(trace: TraceBuilder) -> DeviceDiagnosis:
    d = told(trace)
    assert len(d.devices) == 1
    return d.devices[0]


def parts(trace: TraceBuilder) -> dict[str, int]:
    return parts_of(only(trace))


def said(d: Diagnosis) -> dict[str, Any]:
    """What the code under test says."""
    return {
        "devices": {(x.rank, x.device): _device_said(x) for x in d.devices},
        "clocks": (d.clocks.low, d.clocks.high, d.clocks.shift),
        "reads": _sites(
            (
                (r.name.removesuffix(" (polling)"), r.within),
                (r.calls, r.waited, r.blocked_ns, r.exposed_idle_ns, r.idle_after_ns),
            )
            for r in d.reads
        ),
    }


def true(o: Oracle) -> dict[str, Any]:
    """What the oracle says, in the same shape."""
    return {
        "devices": {(x.rank, x.device): _device_true(x) for x in o.devices},
        "clocks": (o.low, o.high, o.shift),
        "reads": _sites(
            ((r.name, r.within), (1, int(r.waited), r.back - r.begin, r.exposed, r.idle_after))
            for r in o.reads
        ),
    }


def parts_of(d: DeviceDiagnosis) -> dict[str, int]:
    """The parts that are there at all, by label."""
    return {p.label: ns for p, ns in d.parts_ns.items() if ns}


def _device_said(d: DeviceDiagnosis) -> dict[str, Any]:
    b, p = d.bubbles, d.pieces
    pieces = []
    for i in range(len(p.start)):
        doing = Doing(int(p.doing[i]))
        in_gap = p.part[i] == Part.HOST_GAP
        by_call = doing in (Doing.ALLOCATOR, Doing.CUDA_CALL)
        owner = int(p.call[i] if by_call else p.range[i]) if in_gap and doing in NAMED else None
        kind = (Part(int(p.part[i])).label, doing.label if in_gap else "", owner)
        pieces.append((int(p.bubble[i]), int(p.start[i]), int(p.end[i]), kind))
    return {
        "window": (d.start, d.end),
        "busy": d.busy_ns,
        "overlapped": d.overlapped_ns,
        "opaque": d.opaque_ns,
        "parts": parts_of(d),
        "bubbles": list(
            zip(b.start.tolist(), b.end.tolist(), b.op.tolist(), b.launch.tolist(), strict=True)
        ),
        "pieces": _joined(pieces),
    }


def _device_true(d: DeviceTruth) -> dict[str, Any]:
    pieces = []
    for i, bubble in enumerate(d.bubbles):
        for p in bubble.pieces:
            in_gap = p.part == Part.HOST_GAP
            owner = p.owner.row if in_gap and p.doing in NAMED and p.owner else None
            kind = (p.part.label, p.doing.label if in_gap else "", owner)
            pieces.append((i, p.start, p.end, kind))
    return {
        "window": (d.start, d.end),
        "busy": d.busy,
        "overlapped": d.overlapped,
        "opaque": d.opaque,
        "parts": {p.label: ns for p, ns in d.parts().items() if ns},
        "bubbles": [
            (b.start, b.end, b.op.row, b.launch.row if b.launch else -1) for b in d.bubbles
        ],
        "pieces": _joined(pieces),
    }


def _joined(pieces: list[tuple[int, int, int, Any]]) -> list[tuple[int, int, int, Any]]:
    """Neighbours of one bubble and one kind made one: how finely a gap is cut is free."""
    joined = []
    for (bubble, kind), group in groupby(pieces, key=lambda p: (p[0], p[3])):
        run = list(group)
        joined.append((bubble, run[0][1], run[-1][2], kind))
    return joined


def _sites(reads: Any) -> dict[Any, tuple[int, ...]]:
    """Sums by name and surroundings: two lines of one program may share both.

    What was around a read may have begun before the recording did. Such a read may be counted
    where all others of its name are.
    """
    total: dict[Any, tuple[int, ...]] = {}
    for key, figures in reads:
        total[key] = tuple(map(sum, zip(total.get(key, (0,) * 5), figures, strict=True)))
    for name, within in list(total):
        places = [key for key in total if key[0] == name and key[1]]
        if not within and len(places) == 1:
            lone, home = total.pop((name, ())), total[places[0]]
            total[places[0]] = tuple(map(sum, zip(lone, home, strict=True)))
    return total
