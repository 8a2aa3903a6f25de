"""What to do: the findings, largest first, and the passes that address each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bubblescope.diagnose.model import Diagnosis, Finding
from bubblescope.report.page import Page
from bubblescope.report.units import percent, us
from bubblescope.report.words import clean, source_line

OF_STREAM_THREAD = "the stream thread's own"
_INDENT = 5
_SMALL = 0.01
"""Findings under one per cent of a step are left to --json, but for the first few."""
_ALWAYS = 3


def findings(
    diagnosis: Diagnosis, passes: Mapping[int, Sequence[str]], page: Page, top: int
) -> None:
    """Print them: ranked ones numbered, the others under a dot with the reason."""
    if not diagnosis.findings:
        page.heading("Findings", "none")
        return
    predicted = any(f.predicted_saving_ns_per_step is not None for f in diagnosis.findings)
    page.heading("Findings", "by what each would save" if predicted else "largest first")
    number = 0
    said: dict[str, str] = {}
    shown = _shown(diagnosis, top)
    for index in shown:
        finding = diagnosis.findings[index]
        number += finding.ranked
        mark = f"{number}" if finding.ranked else page.dot
        title = clean(finding.title) + _price(finding, diagnosis) + _saving(finding)
        if not finding.ranked:
            own = not diagnosis.meta.lengthens_graphs
            title += f"; {OF_STREAM_THREAD if own else 'seen at node level only'}, not ranked"
        page.prose(
            title, indent=_INDENT, first=f"{mark:>3}", style="bold" if finding.ranked else ""
        )
        names = passes.get(index, ())
        if finding.share >= _SMALL:
            why = _why(finding, said, mark)
            if why:
                page.prose(why, indent=_INDENT)
        if finding.share >= _SMALL or names:
            _passes(names, finding, page)
    left_out = [f for i, f in enumerate(diagnosis.findings) if i not in set(shown)]
    if left_out:
        small = ", each under 1 %" if all(f.share < _SMALL for f in left_out) else ""
        page.put(f"  {page.ellipsis} and {len(left_out):,} more{small}")


def numbers(diagnosis: Diagnosis, top: int) -> dict[tuple[object, ...], int]:
    """The number under which a blocking read is found: by (call, site, within, exposed ns)."""
    found: dict[tuple[object, ...], int] = {}
    number = 0
    for index in _shown(diagnosis, top):
        finding = diagnosis.findings[index]
        number += finding.ranked
        if finding.ranked and finding.kind == "blocking read":
            key = (finding.call, finding.site, finding.within, finding.exposed_idle_ns)
            found[key] = number
    return found


def _shown(diagnosis: Diagnosis, top: int) -> list[int]:
    """Indices of the findings worth a line: those of weight, and the first few in any case."""
    ranked = [i for i, f in enumerate(diagnosis.findings) if f.ranked]
    others = [i for i, f in enumerate(diagnosis.findings) if not f.ranked]
    return [
        i
        for group in (ranked, others)
        for place, i in enumerate(group[:top])
        if diagnosis.findings[i].share >= _SMALL or (group is ranked and place < _ALWAYS)
    ]


def _price(finding: Finding, diagnosis: Diagnosis) -> str:
    """What it costs, unless the title says it already: ": 829 us a step (9.5 %)"."""
    total, ns = finding.exposed_idle_ns, finding.exposed_idle_ns_per_step
    each = " a step"
    if ns is None or not diagnosis.steps.counted().any():
        ns, each = total, ""
    elif not ns:
        # What is nothing in the median step can still be much in a few.
        return f": {us(total)} us in all"
    if f"{us(ns)} us" in finding.title:
        return ""
    if not math.isfinite(finding.share):
        return f": {us(ns)} us{each}"
    return f": {us(ns)} us{each} ({percent(round(finding.share * 1e6), 1_000_000)} %)"


def _saving(finding: Finding) -> str:
    """What the step would be without it: "; without it the step is 864 us shorter"."""
    ns = finding.predicted_saving_ns_per_step
    if ns is None:
        return ""
    if ns == 0:
        return "; without it the step is no shorter"
    way = "shorter" if ns > 0 else "longer"
    return f"; without it the step is {us(abs(ns))} us {way}"


def _why(finding: Finding, said: dict[str, str], mark: str) -> str:
    """Why it costs and what to do; advice given before is only pointed to."""
    text = clean(finding.why)
    if text in said and text:
        return f"As under {said[text]}."
    if finding.ranked:
        said[text] = mark
    if finding.site and finding.site.file not in finding.title:
        text += f" At {source_line(finding.site)}."
    return text.strip()


def _passes(names: Sequence[str], finding: Finding, page: Page) -> None:
    """The passes that address it; that none does is said only where one is wanted."""
    if names:
        noun = "pass" if len(names) == 1 else "passes"
        text = f"{noun}: {', '.join(clean(name) for name in names)}"
        page.prose(text, indent=_INDENT, style="green")
    elif finding.ranked:
        page.prose("no pass addresses this yet", indent=_INDENT, style="dim")
