"""How far host and device each are from deciding the step, and how far ahead the host must be."""

from __future__ import annotations

import numpy as np

from bubblescope.diagnose.model import median_ns
from bubblescope.predict.clock import StepClock
from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph, Times
from bubblescope.predict.model import Slack
from bubblescope.timeline.tables import Int


def find(graph: Graph, clock: StepClock, edit: Edit, times: Times, step_ns: int) -> Slack:
    """The slack of a replay whose median step is `step_ns`."""
    host = edit.copy()
    for durations in (host.run, host.tail, host.between):
        durations[:] = 0
    device = edit.copy()
    for durations in (device.gap, device.call, device.own):
        durations[:] = 0
    dry = graph.replay(device)
    host_alone = _median(clock, graph.replay(host), edit)
    device_alone = _median(clock, dry, edit)
    have, needed = _run_ahead(graph, clock, edit, times, dry)
    return Slack(
        host_alone_ns=host_alone,
        device_alone_ns=device_alone,
        host_ns=step_ns - host_alone,
        device_ns=step_ns - device_alone,
        run_ahead_ns=have,
        run_ahead_needed_ns=needed,
    )


def _median(clock: StepClock, times: Times, edit: Edit) -> int:
    return median_ns(clock.lengths(times.start, times.end, edit.gone)) or 0


def _run_ahead(
    graph: Graph, clock: StepClock, edit: Edit, times: Times, dry: Times
) -> tuple[int | None, int | None]:
    """Medians over counted steps of the run-ahead that there was and that was needed.

    dry: a replay in which the host takes no time.
    """
    on = graph.launched[edit.launches]
    op = graph.queues.order[on]
    step = clock.step_of(op)
    kept = (step >= 0) & ~edit.gone[op]
    op, step, on = op[kept], step[kept], on[kept]
    if not len(op):
        return None, None
    launch = times.begin[graph.causes.launch[on]]
    latency = np.zeros(len(graph.queues.order), np.int64)
    latency[graph.launched] = edit.latency
    ready = launch + latency[on]
    order = np.lexsort((launch, step))
    first = order[np.append(True, np.diff(step[order]) > 0)]
    lead = np.searchsorted(step[first], step)
    head = first[lead]
    late = (ready - launch[head]) - (dry.start[op] - dry.start[op[head]])
    needed = np.zeros(len(first), np.int64)
    np.maximum.at(needed, lead, late)
    have: Int = times.start[op[first]] + graph.shift - launch[first]
    return median_ns(np.maximum(have, 0)), median_ns(needed)
