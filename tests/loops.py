"""Decode loops with known figures, for what compares recordings and checks budgets."""

from __future__ import annotations

from bubblescope.compare import Run
from bubblescope.timeline import Timeline
from tests.synthetic import TraceBuilder

US = 1_000


def with_read(steps: int = 6, more: int = 0) -> TraceBuilder:
    """Steps of 100 us: busy [t+20, t+80), a read that waits [t+20, t+85), launch [t+110, t+115).

    So each bubble [t+80, t+120) is read tail 5, host gap 25, launch call 5, launch latency 5, and
    the read is charged with 35 of it. `more` makes every kernel so many us longer.
    """
    trace = TraceBuilder()
    for k in range(steps):
        t = k * (100 + more) * US
        trace.step(k, t, 90 * US)
        trace.launch("void gemm<4>(int)", t + 10 * US, 5 * US, t + 20 * US, (60 + more) * US)
        trace.sync(t + 20 * US, (65 + more) * US)
    return trace


def without(steps: int = 6) -> TraceBuilder:
    """Steps of 70 us: the same kernel [t+20, t+80), launch [t+80, t+85): idle 10 of them."""
    trace = TraceBuilder()
    for k in range(steps):
        t = k * 70 * US
        trace.step(k, t + 5 * US, 60 * US)
        trace.launch("void gemm<8>(int)", t + 10 * US, 5 * US, t + 20 * US, 60 * US)
    return trace


def run(trace: TraceBuilder | Timeline, window: tuple[int, int] | None = None) -> Run:
    """Diagnosed."""
    timeline = trace if isinstance(trace, Timeline) else trace.timeline()
    return Run.of(timeline, window=window)
