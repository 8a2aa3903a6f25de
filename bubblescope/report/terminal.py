"""The report as text: one screen that says what ran, where a step goes, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from bubblescope.diagnose.model import Diagnosis
from bubblescope.report.causes import host_gaps, reads
from bubblescope.report.communication import communication
from bubblescope.report.findings import findings
from bubblescope.report.header import header, headline
from bubblescope.report.launches import launches as launched
from bubblescope.report.page import Page
from bubblescope.report.where import devices, where


def render(
    diagnosis: Diagnosis,
    passes: Mapping[int, Sequence[str]],
    console: Console,
    *,
    top: int = 10,
    launches: bool = False,
) -> None:
    """Print the report on `console`.

    The order is the point: what ran and how far to trust it; where a step goes; which reads and
    which host work cost what; what to do, last, so that it stands above the next prompt.

    Args:
        diagnosis: What to tell.
        passes: Names of the passes that address a finding, by its index in the diagnosis.
        console: Where to. Its width, encoding and colours are followed.
        top: The most rows of each table and the most findings to print.
        launches: Whether to print every figure of the launches, or a few lines.
    """
    page = Page(console)
    header(diagnosis, page, top)
    page.put()
    page.prose(headline(diagnosis), style="bold")
    where(diagnosis, page)
    devices(diagnosis, page)
    communication(diagnosis, page, top)
    reads(diagnosis, page, top)
    host_gaps(diagnosis, page, top)
    launched(diagnosis, page, top, full=launches)
    findings(diagnosis, passes, page, top)
