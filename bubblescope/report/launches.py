"""Launches and queues: a few lines, or every figure."""

from __future__ import annotations

from bubblescope.diagnose.issue import HostCost, LaunchStatistics, Pause, RunAhead, Spread
from bubblescope.diagnose.model import Diagnosis
from bubblescope.report.page import Column, Page
from bubblescope.report.units import count, percent, us
from bubblescope.report.words import clean, frame

_LEVELS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"


def launches(diagnosis: Diagnosis, page: Page, top: int, *, full: bool) -> None:
    """Print them; nothing where no launch is known."""
    said = diagnosis.launches
    if said is None:
        return
    page.heading("Launches", "" if full else "--launches shows all figures")
    page.prose(_calls(said), indent=2)
    # Of several devices, a few lines tell of the one that was starved most often.
    starved = sorted(said.run_ahead, key=lambda ahead: -ahead.dry / ahead.launches)
    for ahead in said.run_ahead if full else starved[:1]:
        page.prose(_ahead(ahead, len(said.run_ahead) > 1), indent=2)
        if full:
            _over_time(ahead, page)
    if full:
        _table(said, page)
    for text in _costs(said, full):
        page.prose(text, indent=2)
    if said.pauses_count:
        page.prose(_pauses(said), indent=2)
        if full:
            _each_pause(said.pauses[:top], page)


def _calls(said: LaunchStatistics) -> str:
    number = said.launches if said.launches_per_step is None else said.launches_per_step
    each = "" if said.launches_per_step is None else " a step"
    text = f"{count(number, 'launch', 'launches')}{each}"
    named = [f"{us(c.call.median_ns)} us for a {c.kind}" for c in said.calls]
    text += f"; a call takes {', '.join(named)} (median)"
    reached = [f"{us(c.latency.median_ns)} us for a {c.kind}" for c in said.calls if c.latency]
    if reached:
        text += f"; from call to start on an idle device: {', '.join(reached)}"
    queued = said.launch_and_queue_ns
    if said.launch_and_queue_ns_per_step is not None:
        queued = said.launch_and_queue_ns_per_step
    return f"{text}. Launch and queuing time: {us(queued)} us{each}."


def _ahead(ahead: RunAhead, named: bool) -> str:
    whose = f"Rank {ahead.rank}, device {ahead.device}: the" if named else "The"
    return (
        f"{whose} host is ahead of the device by {us(ahead.ahead.median_ns)} us and "
        f"{count(ahead.depth_median, 'operation')} (median; at most {us(ahead.ahead.max_ns)} us "
        f"and {ahead.depth_max:,}); at {percent(ahead.dry, ahead.launches)} % of its calls the "
        "device had nothing left to do."
    )


def _over_time(ahead: RunAhead, page: Page) -> None:
    """The least run-ahead of each slice of the window, drawn to scale."""
    levels = _ASCII if page.ellipsis.isascii() else _LEVELS
    most = max((part.ahead_ns for part in ahead.over_time if part), default=0)
    if not most:
        return
    line = "".join(
        page.dot if part is None else levels[-(-part.ahead_ns * (len(levels) - 1) // most)]
        for part in ahead.over_time
    )
    page.put(line, 4)
    page.put(
        f"least run-ahead over the window, up to {us(most)} us; {page.dot} nothing launched", 4
    )


def _table(said: LaunchStatistics, page: Page) -> None:
    rows: list[list[str]] = []
    for calls in said.calls:
        for what, spread in (
            ("launch call", calls.call),
            ("call to start, device idle", calls.latency),
            ("queued after the call", calls.queued),
        ):
            if spread is not None:
                rows.append([calls.kind, what, *_spread(spread)])
    figures = [
        Column(head, right=True, drop=drop)
        for head, drop in (("times", 5), ("min us", 4), ("median", 0), ("p90", 3), ("p99", 2))
    ]
    page.table((Column(), Column(shrink=16), *figures, Column("max", right=True, drop=1)), rows)


def _spread(spread: Spread) -> list[str]:
    times = (spread.min_ns, spread.median_ns, spread.p90_ns, spread.p99_ns, spread.max_ns)
    return [f"{spread.count:,}", *map(us, times)]


def _costs(said: LaunchStatistics, full: bool) -> list[str]:
    """Short kernels, pageable copies and allocator calls, where they are worth a line."""
    found = []
    if said.short and (full or 2 * said.short > said.kernels):
        found.append(
            f"{said.short:,} of {count(said.kernels, 'kernel')} with a call of their own ran for "
            f"less time than the call took ({us(said.short_ns)} us in all): launched so, they "
            "cannot keep the device busy."
        )
    blocking = sum(c.blocking for c in said.pageable)
    if said.pageable and (full or blocking):
        number = sum(c.calls for c in said.pageable)
        advice = ": pinned memory and non_blocking=True avoid that" if blocking else ""
        found.append(
            f"{count(number, 'copy', 'copies')} from or to pageable memory "
            f"({_named(said.pageable)}), {us(sum(c.ns for c in said.pageable))} us of host time; "
            f"{blocking:,} returned only when the copy was done{advice}."
        )
    if said.allocator:
        number = sum(c.calls for c in said.allocator)
        found.append(
            f"{count(number, 'allocator call')} ({_named(said.allocator)}), "
            f"{us(sum(c.ns for c in said.allocator))} us of host time."
        )
    return found


def _named(costs: tuple[HostCost, ...]) -> str:
    return ", ".join(f"{clean(c.name)} {c.calls:,}" for c in costs[:4])


def _pauses(said: LaunchStatistics) -> str:
    worst = said.pauses[0]
    return (
        f"{count(said.pauses_count, 'pause')} of the host, as of a garbage collection, beyond what "
        f"is usual: {us(said.pauses_ns)} us in all; the longest {us(worst.ns)} us in step "
        f"{worst.step}, {_where(worst)}."
    )


def _where(pause: Pause) -> str:
    return f"{clean(pause.doing)} {frame(clean(pause.name))}".strip()


def _each_pause(pauses: tuple[Pause, ...], page: Page) -> None:
    page.table(
        (
            Column("step", right=True),
            Column("us", right=True),
            Column("usual us", right=True, drop=1),
            Column("in", shrink=20),
        ),
        [[str(p.step), us(p.ns), us(p.typical_ns), _where(p)] for p in pauses],
    )
