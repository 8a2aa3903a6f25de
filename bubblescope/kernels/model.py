"""What a table of kernels says: frozen data that reporters draw and programs read. Times in ns."""

from __future__ import annotations

from dataclasses import dataclass

from bubblescope.diagnose.model import Diagnosis


@dataclass(frozen=True, slots=True)
class Nsight:
    """What nsight-python measured of one kernel.

    mean_ns, min_ns, max_ns: durations of a call. calls_per_step: as nsight-python saw them.
    """

    calls_per_step: float
    mean_ns: int
    min_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class NsightRun:
    """How nsight-python measured.

    version: of nsight-python; cupti: of the library that it used. steps: measured.
    unmatched: kernels that it saw and the table has not, by their names.
    unseen_ns: time a step of the table's kernels that it did not see.
    """

    version: str
    cupti: str
    steps: int
    unmatched: tuple[str, ...]
    unseen_ns: int


@dataclass(frozen=True, slots=True)
class Dram:
    """What ncu counted of one kernel.

    launches: how many were profiled. bytes_per_second: DRAM bytes read and written over the time
    of those launches. percent_of_peak: `dram__throughput` of them, weighted by their time; None
    where ncu gave none. ns: their median duration under ncu, one kernel at a time.
    """

    launches: int
    bytes_per_second: float
    percent_of_peak: float | None
    ns: int


@dataclass(frozen=True, slots=True)
class DramRun:
    """How DRAM throughput was counted: version of ncu, by what, launches profiled, unmatched."""

    version: str
    collector: str
    launches: int
    unmatched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One row: all operations of one name, or of one family.

    name: in full, or of the family. kind: "kernel", "memcpy", "memset" or "graph" (replays
    recorded whole). names: how many names the row stands for. streams: where they ran.
    in_graphs: how many of the calls were nodes of a graph replay, or replays.
    p90_ns: the least duration that at least nine of ten calls do not pass.
    calls_per_step: mean over the counted steps; ns_per_step: median over them; None without steps.
    """

    name: str
    kind: str
    names: int
    streams: tuple[int, ...]
    in_graphs: int
    calls: int
    total_ns: int
    median_ns: int
    p90_ns: int
    min_ns: int
    max_ns: int
    calls_per_step: float | None
    ns_per_step: int | None
    nsight: Nsight | None = None
    dram: Dram | None = None

    @property
    def mean_ns(self) -> int:
        """Mean duration of a call, rounded."""
        return (2 * self.total_ns + self.calls) // (2 * self.calls)

    @property
    def where(self) -> str:
        """Launched by a graph, by itself ("stream"), or both."""
        if self.in_graphs == self.calls:
            return "graph"
        return "both" if self.in_graphs else "stream"


@dataclass(frozen=True, slots=True)
class Kernels:
    """Device operations of the counted steps, or of the whole window where there are no steps.

    An operation counts in the step that launched it. rows: the longest in total first.
    steps: how many were counted. window_ns: length of these, summed over devices.
    busy_ns: the union of the operations of each device. overlapped_ns: the sum of their durations
    less busy_ns, so that `sum(row.total_ns) == busy_ns + overlapped_ns`.
    opaque_ns: durations of graph replays recorded whole.
    durations: where these come from, in words.
    """

    diagnosis: Diagnosis
    by: str
    durations: str
    steps: int
    window_ns: int
    busy_ns: int
    overlapped_ns: int
    opaque_ns: int
    operations: int
    rows: tuple[Kernel, ...]
    nsight: NsightRun | None = None
    dram: DramRun | None = None

    @property
    def durations_ns(self) -> int:
        """Sum of the durations of all operations."""
        return self.busy_ns + self.overlapped_ns
