"""What a diagnosis says: frozen data that reporters draw and programs read. Times in ns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from bubblescope.diagnose.exchange import Communication
from bubblescope.diagnose.issue import LaunchStatistics
from bubblescope.timeline.meta import Meta
from bubblescope.timeline.tables import Int


class Part(IntEnum):
    """The parts of a bubble. Every nanosecond of a bubble is in exactly one."""

    READ_TAIL = 0
    HOST_GAP = 1
    HOST_WAIT = 2
    LAUNCH_CALL = 3
    LAUNCH_LATENCY = 4
    STREAM_WAIT = 5
    DEVICE_GAP = 6
    GRAPH_GAP = 7
    UNRESOLVED = 8
    UNKNOWN = 9

    @property
    def label(self) -> str:
        """The name that tables and JSON use: "read tail"."""
        return self.name.lower().replace("_", " ")


class Doing(IntEnum):
    """What the launching thread was doing in a host gap."""

    NOT_RECORDED = 0
    ALLOCATOR = 1
    CUDA_CALL = 2
    PROFILER = 3
    OP = 4
    ANNOTATION = 5
    PYTHON = 6
    OS = 7

    @property
    def label(self) -> str:
        """In words, for tables and JSON."""
        return _DOING[self]


class Phase(IntEnum):
    """What a step did, where its name or its kernels tell."""

    NOT_TOLD = 0
    DECODE = 1
    PREFILL = 2
    OTHER = 3

    @property
    def label(self) -> str:
        """In words, for tables and JSON; "" where nothing tells."""
        return _PHASE[self]


_PHASE = {
    Phase.NOT_TOLD: "",
    Phase.DECODE: "decode",
    Phase.PREFILL: "prefill",
    Phase.OTHER: "other kernels",
}
_DOING = {
    Doing.NOT_RECORDED: "nothing recorded",
    Doing.ALLOCATOR: "allocator",
    Doing.CUDA_CALL: "other CUDA call",
    Doing.PROFILER: "profiler overhead",
    Doing.OP: "framework op",
    Doing.ANNOTATION: "annotation",
    Doing.PYTHON: "Python frame",
    Doing.OS: "operating system",
}


@dataclass(frozen=True, slots=True, eq=False)
class Bubbles:
    """One row a bubble, in time order. start, end: ns, shape (n,).

    op: row of `device_ops` that ended it. launch: row of `host_calls` that launched that
    operation, -1 where none is known. step: index into the device's steps.
    """

    start: Int
    end: Int
    op: Int
    launch: Int
    step: Int


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The bubbles cut into parts: rows tile each bubble from its start to its end, in order.

    bubble: row of the device's Bubbles. part: a Part. doing: a Doing, for host gaps.
    call, range: rows of `host_calls` and `ranges`, -1 where there is none: the call that filled the
    piece and the range around it, or the range that filled it.
    """

    bubble: Int
    start: Int
    end: Int
    part: npt.NDArray[np.int8]
    doing: npt.NDArray[np.int8]
    call: Int
    range: Int

    def rows(self, chosen: npt.NDArray[np.bool_]) -> Pieces:
        """The pieces that a mask chooses."""
        return Pieces(*(getattr(self, f.name)[chosen] for f in fields(self)))

    @classmethod
    def concat(cls, parts: Sequence[Pieces]) -> Pieces:
        """Pieces of several devices, one after the other; bubble rows stay those of each."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


@dataclass(frozen=True, slots=True, eq=False)
class StepTable:
    """Steps of one device, or of all devices added up. Shapes (n,), parts_ns (n, len(Part)).

    number: as recorded, else counted from 0. whole: its operations are all there, and at most 1 %
    of it is unknown. led: what came before its first operation was recorded, so that the bubble
    which begins it is too. outlier: whole, but far from the rest. phase: a Phase; OTHER are steps
    that spend most of their time in operations that the usual step does not have.
    """

    number: Int
    start: Int
    end: Int
    whole: npt.NDArray[np.bool_]
    led: npt.NDArray[np.bool_]
    outlier: npt.NDArray[np.bool_]
    phase: npt.NDArray[np.int8]
    busy_ns: Int
    overlapped_ns: Int
    parts_ns: Int

    def rows(self, chosen: npt.NDArray[np.bool_]) -> StepTable:
        """The steps that a mask chooses."""
        return StepTable(*(getattr(self, f.name)[chosen] for f in fields(self)))

    @property
    def length_ns(self) -> Int:
        """Duration of each step."""
        return self.end - self.start

    def counted(self) -> npt.NDArray[np.bool_]:
        """Mask of the steps that medians are taken over.

        Steps of another phase and outliers are left out, and a step whose beginning was not
        recorded where there are others.
        """
        counted = self.whole & ~self.outlier & self.alike()
        return counted & self.led if (counted & self.led).any() else counted

    def alike(self) -> npt.NDArray[np.bool_]:
        """Mask of the steps of the phase that figures are about: decode where one is whole."""
        return alike(self.phase, self.whole)

    def median(self, values: Int) -> int | None:
        """Median over counted steps, of a column of this table or one like it; halves down."""
        return median_ns(values[self.counted()])


@dataclass(frozen=True, slots=True, eq=False)
class Markers:
    """Host times at which steps begin, in order, one row a step.

    owner: a small id of the (rank, process) of each, in the order of `host_calls`. closed_end: True
    where the marker's own range shows that its end was recorded too (annotations); graphs and
    cycles show only beginnings.
    """

    name: str
    owner: Int
    number: Int
    start: Int
    closed_end: bool


def alike(phase: npt.NDArray[np.int8], whole: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mask of the decode steps; where none of them is whole, of those not told apart; else all.

    What begins before the first marker, and so is cut, states nothing and is left among them.
    """
    cut = ~whole & (phase == Phase.NOT_TOLD)
    for chosen in (phase == Phase.DECODE, phase == Phase.NOT_TOLD):
        if (chosen & whole).any():
            return np.asarray(chosen | cut)
    return np.ones(len(phase), np.bool_)


def median_ns(values: Int) -> int | None:
    """Median in whole nanoseconds (the mean of the middle two, rounded down), None of nothing."""
    if not len(values):
        return None
    ordered = np.sort(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return int(ordered[middle])
    return (int(ordered[middle - 1]) + int(ordered[middle])) // 2


@dataclass(frozen=True, slots=True)
class Site:
    """Where in the source: file, 1-based line (the function's first in Kineto files), function."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class ReadSite:
    """All blocking reads of one place in the program, and their price.

    within: the annotations and ops around the call, outermost first. under: the one to name, the
    outermost op within the innermost annotation.
    blocked_ns: time the host spent in them. exposed_idle_ns: device idle they are charged with.
    idle_after_ns: all idle of bubbles that the late host ended, until the thread's next wait.
    *_per_step: medians over steps; None where no steps were found.
    """

    name: str
    site: Site | None
    within: tuple[str, ...]
    under: str
    calls: int
    waited: int
    calls_per_step: float | None
    blocked_ns: int
    blocked_ns_per_step: int | None
    exposed_idle_ns: int
    exposed_idle_ns_per_step: int | None
    idle_after_ns: int
    idle_after_ns_per_step: int | None


@dataclass(frozen=True, slots=True)
class Filler:
    """What filled the host gaps: one name, how many records of it, and how much of them.

    under: for CUDA calls, the range that asked for them. Where nothing was recorded, count is the
    number of stretches.
    """

    doing: str
    name: str
    under: str
    count: int
    ns: int
    ns_per_step: int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to act on.

    kind: "blocking read" or a part's name. ns_per_step: None where no steps were found.
    ranked: False for what only a node-level window shows, which never leads.
    call: the CUDA call concerned, where there is one.
    predicted_saving_ns_per_step: by how much a replay without it shortens the step; None where
    that was not predicted.
    """

    kind: str
    title: str
    why: str
    exposed_idle_ns: int
    exposed_idle_ns_per_step: int | None
    share: float
    ranked: bool
    call: str = ""
    site: Site | None = None
    within: tuple[str, ...] = ()
    predicted_saving_ns_per_step: int | None = None


@dataclass(frozen=True, slots=True)
class HealthNote:
    """Something dropped, repaired, missing or skewed, and how often."""

    kind: str
    count: int
    note: str


@dataclass(frozen=True, slots=True)
class Clocks:
    """Bounds on how far the device clock may be off the host clock, in ns.

    Adding any x with low <= x <= high to device times breaks no bound; None: no evidence.
    shift: what was added (0 where the clocks agree as recorded).
    """

    low: int | None
    high: int | None
    shift: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one step for the small bar: "busy" or a part's name, from the step's start."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class DeviceDiagnosis:
    """One device's window, in ns: busy_ns + sum(parts_ns) == window_ns, always."""

    rank: int
    device: int
    name: str
    start: int
    end: int
    busy_ns: int
    overlapped_ns: int
    opaque_ns: int
    operations: int
    parts_ns: dict[Part, int]
    steps: StepTable
    bubbles: Bubbles
    pieces: Pieces
    reads: tuple[ReadSite, ...]
    typical_step: tuple[Segment, ...]

    @property
    def window_ns(self) -> int:
        """Length of the window."""
        return self.end - self.start

    @property
    def unknown_ns(self) -> int:
        """Time in which it was not recorded whether the device worked."""
        return self.parts_ns[Part.UNKNOWN]

    @property
    def idle_ns(self) -> int:
        """All bubble parts but the unknown."""
        return sum(self.parts_ns.values()) - self.unknown_ns


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """Where the time went. With several devices the totals are sums over them.

    markers: what begins the steps, on the host; None where nothing was found. communication: None
    where devices exchange nothing. launches: None where no launch is known. mostly_lost: how many
    launches left no record, where so few did that the window is no sample of what ran; else "".
    """

    meta: Meta
    marker: str
    devices: tuple[DeviceDiagnosis, ...]
    steps: StepTable
    reads: tuple[ReadSite, ...]
    fillers: tuple[Filler, ...]
    findings: tuple[Finding, ...]
    health: tuple[HealthNote, ...]
    warnings: tuple[str, ...]
    clocks: Clocks
    level: str
    markers: Markers | None = None
    communication: Communication | None = None
    launches: LaunchStatistics | None = None
    mostly_lost: str = ""

    def total(self, name: str) -> int:
        """Sum over devices of a `*_ns` figure: `total("busy_ns")`."""
        return sum(getattr(d, name) for d in self.devices)

    def parts_ns(self) -> dict[Part, int]:
        """Sum over devices of each part, in ns."""
        return {p: sum(d.parts_ns[p] for d in self.devices) for p in Part}
