"""What a prediction says: frozen data that reporters draw and programs read. Times in ns."""

from __future__ import annotations

from dataclasses import dataclass

from bubblescope.diagnose.model import Diagnosis
from bubblescope.timeline.tables import Int


@dataclass(frozen=True, slots=True)
class PathRow:
    """A share of the critical path: what kind of time, in what, and how much of it a step.

    kind: "device operation", "device gap", "graph gap", "stream wait", "launch" (from the beginning
    of the call to that of the operation), "host call", "host work" or "read return" (from the end
    of the work that was awaited).
    """

    kind: str
    name: str
    ns_per_step: int


@dataclass(frozen=True, slots=True)
class Slack:
    """How far host and device are from deciding the step alone; medians, ns a step.

    host_alone_ns: the step if operations took no time. device_alone_ns: the step if the host took
    none but to wait. host_ns, device_ns: what the step is longer than each.
    run_ahead_ns: how long before it ran the first operation of a step was launched.
    run_ahead_needed_ns: how long before it would have to be for no later launch of the step to
    come late. Both None where no launch of a counted step is known.
    """

    host_alone_ns: int
    device_alone_ns: int
    host_ns: int
    device_ns: int
    run_ahead_ns: int | None
    run_ahead_needed_ns: int | None


@dataclass(frozen=True, slots=True)
class Inferred:
    """What the graph concludes and the recording does not say: edges by number.

    reads: waits whose work is concluded, of reads that are edges. stream_waits: waits for another
    stream. fixed: blocking reads that keep their recorded length, their work unknown.
    unlaunched: operations without a launch.
    """

    reads: int
    stream_waits: int
    fixed: int
    unlaunched: int


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """One replay: the length of each counted step, its critical path and its slack.

    steps_ns: shape (counted steps,).
    """

    steps_ns: Int
    path: tuple[PathRow, ...]
    slack: Slack


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The step as recorded, as an unchanged replay gives it, and as the what-ifs would have it.

    what_ifs: as text. assumed: what they rest on that the recording does not say. step_ns,
    replayed_ns, predicted_ns, saving_ns: medians over the counted steps; saving is replayed less
    predicted. withheld: why nothing is predicted, "" where something is. number, measured: of
    each counted step. before, after: diagnoses of the recording and of what it would have been.
    """

    what_ifs: tuple[str, ...]
    assumed: tuple[str, ...]
    withheld: str
    step_ns: int | None
    replayed_ns: int | None
    predicted_ns: int | None
    number: Int
    measured: Int
    unchanged: Replay | None
    changed: Replay | None
    inferred: Inferred
    before: Diagnosis
    after: Diagnosis | None

    @property
    def saving_ns(self) -> int | None:
        """How much shorter the step becomes; None where that is withheld."""
        if self.predicted_ns is None or self.replayed_ns is None:
            return None
        return self.replayed_ns - self.predicted_ns
