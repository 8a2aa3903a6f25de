"""Communication between devices: hidden and exposed, waiting and work, and the late rank."""

from __future__ import annotations

from bubblescope.diagnose.exchange import Communication, Exchange, Lateness
from bubblescope.diagnose.model import Diagnosis
from bubblescope.report.page import Column, Page
from bubblescope.report.units import count, percent, span, us
from bubblescope.report.words import clean, frame

_SMALL = 100
"""A rank is not called late where the others waited for less than a hundredth of the window."""


def communication(diagnosis: Diagnosis, page: Page, top: int) -> None:
    """Print it; nothing where devices exchange nothing."""
    said = diagnosis.communication
    if said is None:
        return
    per_step = said.total.exposed_ns_per_step is not None
    devices = len(diagnosis.devices)
    summed = f", summed over {devices} devices" if devices > 1 else ""
    page.heading("Communication", f"{'us a step, medians' if per_step else 'us in all'}{summed}")
    page.prose(_split(said.total, diagnosis), indent=2)
    page.table(
        (
            Column(),
            Column("calls", right=True),
            Column("median us", right=True),
            Column("max us", right=True, drop=2),
            Column("us in all", right=True),
            Column("waiting", right=True, drop=1),
        ),
        [
            [
                kind.kind,
                f"{kind.calls:,}",
                us(kind.median_ns),
                us(kind.max_ns),
                us(kind.total_ns),
                "" if kind.waiting_ns is None else us(kind.waiting_ns),
            ]
            for kind in said.kinds
        ],
    )
    _late(said, diagnosis, page, top)
    if said.note:
        page.prose(clean(said.note), indent=2)


def _split(total: Exchange, diagnosis: Diagnosis) -> str:
    """Hidden and exposed in one sentence, and what of the exposed only waited."""
    steps = diagnosis.steps
    step = steps.median(steps.busy_ns + steps.parts_ns.sum(axis=1))
    figures = (
        total.busy_ns_per_step,
        total.hidden_ns_per_step,
        total.exposed_ns_per_step,
        total.exposed_waiting_ns_per_step,
    )
    whole = step
    if step is None:
        whole = diagnosis.total("window_ns")
        figures = total.busy_ns, total.hidden_ns, total.exposed_ns, total.exposed_waiting_ns
    busy, hidden, exposed, waiting = figures
    text = (
        f"{us(busy or 0)} us in communication: {us(hidden or 0)} hidden behind other work, "
        f"{us(exposed or 0)} exposed ({percent(exposed or 0, whole or 0)} %; part of busy)"
    )
    return f"{text}, of which {us(waiting)} waited for other ranks" if waiting is not None else text


def _late(said: Communication, diagnosis: Diagnosis, page: Page, top: int) -> None:
    """Who came late, and what the latest did meanwhile."""
    if not said.late:
        return
    page.table(
        (
            Column("rank", right=True),
            Column("device", right=True, drop=3),
            Column("came last", right=True),
            Column("others waited us", right=True),
            Column("late by us", right=True, drop=1),
            Column("waited us", right=True, drop=2),
        ),
        [
            [
                str(late.rank),
                str(late.device),
                f"{late.last:,} of {late.met:,}",
                us(late.others_waited_ns),
                us(late.late_ns),
                us(late.waited_ns),
            ]
            for late in said.late[:top]
        ],
    )
    if len(said.late) > top:
        page.put(f"  {page.ellipsis} and {len(said.late) - top:,} more")
    worst = said.late[0]
    window = max(device.window_ns for device in diagnosis.devices)
    if _SMALL * worst.others_waited_ns >= window:
        page.prose(_why(worst), indent=2, style="bold")


def _why(late: Lateness) -> str:
    """What the latest device and its host did while only it was missing."""
    doing = max(late.during_ns, key=lambda name: late.during_ns[name], default="")
    text = (
        f"Rank {late.rank} is late: last to {late.last:,} of {count(late.met, 'collective')}, "
        f"for which the others waited {span(late.others_waited_ns)} together"
    )
    if not doing:
        return f"{text}."
    text += f". While only it was missing ({span(late.late_ns)}) its device was mostly "
    text += "busy" if doing == "busy" else f"idle: {doing} {span(late.during_ns[doing])}"
    named = [f"{frame(clean(a.name))} {span(a.ns)}" for a in late.doing if a.name][:2]
    return f"{text}; its host was in {', '.join(named)}." if named else f"{text}."
