"""What pages show of recordings: findings by what they would save, with their passes."""

from __future__ import annotations

from bubblescope.diagnose import Diagnosis
from bubblescope.timeline import Timeline
from bubblescope.view import Shown


def passes_of(diagnosis: Diagnosis) -> dict[int, tuple[str, ...]]:
    """The passes that address each finding, by its index."""
    from optimizations import passes_for

    return {
        n: passes_for(f.kind, f.call, f.site.file if f.site else "")
        for n, f in enumerate(diagnosis.findings)
    }


def shown(timeline: Timeline, diagnosis: Diagnosis, label: str = "") -> Shown:
    """A recording for a page; label: what to call it, where not its source."""
    from bubblescope.predict.ranking import ranked

    diagnosis = ranked(timeline, diagnosis)
    return Shown(timeline, diagnosis, passes_of(diagnosis), label)
