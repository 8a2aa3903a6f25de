"""The three kinds of page: of a diagnosis, of a comparison, of an ablation."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bubblescope.compare.model import Comparison
from bubblescope.diagnose.model import Part
from bubblescope.report import ablation_files, comparison_json
from bubblescope.report.palette import BUSY, KINDS
from bubblescope.report.where import MEANING
from bubblescope.report.words import clean, encodable
from bubblescope.view import html
from bubblescope.view.recording import Shown, encode


class Kind(msgspec.Struct, frozen=True):
    """A kind of time: its name, its colour and what it means."""

    label: str
    colour: str
    meaning: str


class Head(msgspec.Struct, frozen=True):
    """What the page is of. comparison, ablation: as the commands' --json prints them.

    traces: of an ablation, by row (or None), which recording of the page it was measured with.
    """

    kind: str
    title: str
    kinds: list[Kind]
    comparison: msgspec.Raw | None = None
    ablation: ablation_files.AblationJson | None = None
    traces: list[int | None] = []


def diagnosis_page(shown: Shown) -> bytes:
    """The page of one recording, UTF-8 HTML.

    Raises:
        BubblescopeError: it holds more events than a page can show.
    """
    title = _short(shown)
    return html.page(
        f"{title} - bubblescope", _json(Head("diagnosis", title, _kinds())), [encode(shown)]
    )


def comparison_page(before: Shown, after: Shown, comparison: Comparison) -> bytes:
    """The page of two recordings, one under the other with their steps aligned."""
    title = f"{_short(before)} and {_short(after)}"
    told = msgspec.Raw(comparison_json.to_json(comparison))
    head = Head("comparison", title, _kinds(), comparison=told)
    return html.page(f"{title} - bubblescope", _json(head), [encode(before), encode(after)])


def ablation_page(
    ablation: ablation_files.AblationJson, traces: Mapping[int, Shown] | None = None
) -> bytes:
    """The page of an ablation; traces: the recordings of its rows, by row."""
    traces = traces or {}
    order = sorted(traces)
    place: list[int | None] = [
        order.index(row) if row in traces else None for row in range(len(ablation.rows))
    ]
    title = f"ablation of {ablation.target}"
    head = Head("ablation", encodable(title), _kinds(), ablation=ablation, traces=place)
    return html.page(
        f"{clean(title)} - bubblescope", _json(head), [encode(traces[row]) for row in order]
    )


def _json(head: Head) -> bytes:
    return msgspec.json.encode(head)


def _short(shown: Shown) -> str:
    """The file's name without its folders."""
    source = shown.label or shown.timeline.meta.source
    return clean(source.replace("\\", "/").rsplit("/", 1)[-1]) or "a recording"


def _kinds() -> list[Kind]:
    """Busy first, then the parts as numbered, each in its colour everywhere."""
    busy = Kind(BUSY.label, BUSY.colour, "an operation is resident")
    return [busy, *(Kind(p.label, KINDS[p.label].colour, MEANING[p]) for p in Part)]
