"""Who is to blame for a line that failed."""

from __future__ import annotations

from bubblescope.check.model import Culprit
from bubblescope.check.source import line_of
from bubblescope.compare.tally import Tallies
from bubblescope.diagnose.model import Diagnosis

MOST = 3


def reads(diagnosis: Diagnosis, *, per_step: bool) -> tuple[Culprit, ...]:
    """Every read site that was called, the most exposed first."""
    found, recorded_ns = [], _recorded_ns(diagnosis)
    for read in diagnosis.reads:
        calls = read.calls_per_step if per_step else float(read.calls)
        if not calls:
            continue
        found.append(
            Culprit(
                what=f"{read.name} in {read.under}" if read.under and not read.site else read.name,
                site=read.site,
                source=line_of(read.site, recorded_ns),
                per_step=per_step,
                calls=calls,
                blocked_ns=read.blocked_ns_per_step if per_step else read.blocked_ns,
                idle_ns=read.exposed_idle_ns_per_step if per_step else read.exposed_idle_ns,
            )
        )
    return tuple(sorted(found, key=lambda c: (-(c.idle_ns or 0), -(c.blocked_ns or 0))))


def idle(diagnosis: Diagnosis) -> tuple[Culprit, ...]:
    """The findings with most idle."""
    per_step = bool(diagnosis.steps.counted().any())
    recorded_ns = _recorded_ns(diagnosis)
    found = [
        Culprit(
            what=finding.call if finding.site is not None else finding.title,
            site=finding.site,
            source=line_of(finding.site, recorded_ns),
            per_step=per_step,
            idle_ns=finding.exposed_idle_ns_per_step if per_step else finding.exposed_idle_ns,
        )
        for finding in diagnosis.findings
    ]
    found = [c for c in found if c.idle_ns]
    return tuple(sorted(found, key=lambda c: -(c.idle_ns or 0))[:MOST])


def launches(calls: Tallies) -> tuple[Culprit, ...]:
    """The launch calls made most often."""
    found = [
        Culprit(name, None, "", True, calls=float(tally.count_per_step.median or 0))
        for (group, name), tally in calls.items()
        if group == "launch"
    ]
    return tuple(sorted(found, key=lambda c: -(c.calls or 0))[:MOST])


def _recorded_ns(diagnosis: Diagnosis) -> int:
    """When the recording ended, on the recording's clock, which is the epoch's in ours."""
    return max(device.end for device in diagnosis.devices)
