"""PyTorch profiler traces: the JSON that Kineto writes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from bubblescope.errors import BubblescopeError
from bubblescope.ingest import (
    kineto_own,
    kineto_refuse,
    kineto_repair,
    kineto_rows,
    kineto_times,
    together,
)
from bubblescope.ingest.codes import integer
from bubblescope.ingest.format import Format, Progress
from bubblescope.ingest.kineto_events import Events, decode
from bubblescope.ingest.kineto_meta import Document, meta, rank_and_world
from bubblescope.ingest.kineto_repair import Notes
from bubblescope.ingest.kineto_stacks import Sites
from bubblescope.ingest.kineto_text import Stretches, check_sum_gone, joined, no_numbers
from bubblescope.ingest.mend import blank_no_numbers
from bubblescope.ingest.source import Source, refusal
from bubblescope.timeline import Health, Table, Timeline

_BOM = b"\xef\xbb\xbf"


def _matches(head: bytes) -> bool:
    return head.removeprefix(_BOM).lstrip()[:1] in (b"{", b"[")


def _read(source: Source, progress: Progress) -> Timeline:
    with _no_collector_pauses():
        document, events, notes = _events(source, progress)
        if events.merged:
            return _merged(source, document, events, notes, progress)
        return _timeline(source, document, events, notes, progress)


def _merged(
    source: Source, document: Document, events: Events, notes: Notes, progress: Progress
) -> Timeline:
    """The ranks of a file that was merged of several: ids of one say nothing of another."""
    document.distributed = None  # of the first of them
    found: list[tuple[Path, Timeline]] = []
    refused: list[str] = []
    for label, part in events.parts():
        try:
            timeline = _timeline(source, document, part, notes, progress)
        except BubblescopeError as error:
            refused.append(f"{label} {str(error).removeprefix(f'{source.path}: ')}")
            continue
        found.append((Path(label), timeline))
        notes = []
    if not found:
        raise BubblescopeError(f"{source.path}: a merge of ranks: {refused[0]}")
    return together.join(found, source.path.name, refused)


def _events(source: Source, progress: Progress) -> tuple[Document, Events, Notes]:
    """The decoded file; its text is freed on return, before the tables are built."""
    found = _as_it_comes(source, progress)
    document, events, notes = found or _whole(source, progress)
    if events.no_numbers:
        notes.append(no_numbers(events.no_numbers))
    if not sum(events.categories.values()):
        raise kineto_refuse.no_events(source.path, events.total, events.pairs, _cut(notes))
    return document, events, notes


def _as_it_comes(source: Source, progress: Progress) -> tuple[Document, Events, Notes] | None:
    """The file as a profiler writes it, or cut short, decoded piece by piece; else None."""
    text = Stretches(source, lambda share: progress("read", share))
    with suppress(msgspec.DecodeError, RecursionError):
        events = decode(text)
        if text.document is not None:
            return text.document, events, text.notes
    return None


def _whole(source: Source, progress: Progress) -> tuple[Document, Events, Notes]:
    """The file read as a whole, and mended where it must be."""
    content, cut = source.read(lambda share: progress("read", share))
    if content.startswith(_BOM):
        content[:3] = b"   "  # white space, so that byte offsets stay those of the file
    found, error = _decoded(source, content)
    notes: Notes = []
    if found is None and (numbers := blank_no_numbers(content)):
        notes.append(no_numbers(numbers))
        found, error = _decoded(source, content)
    if found is not None:
        notes += [check_sum_gone(cut)] if cut else []
    else:
        if source.strict:
            raise kineto_refuse.not_json(source.path, content, cut, error)
        found, repairs = kineto_repair.recover(content)
        if found is None or not found.trace_events:
            raise kineto_refuse.not_json(source.path, content, cut, error)
        notes += repairs.notes(cut)
    pieces = joined(found.trace_events, lambda share: progress("decode", share))
    return found, decode(pieces), notes


def _decoded(source: Source, content: bytearray) -> tuple[Document | None, Exception | None]:
    """The file as it stands; none, and what is wrong, where it is not valid JSON."""
    try:
        found = msgspec.json.decode(content, type=Document | list[msgspec.Raw])
    except msgspec.ValidationError as error:
        raise kineto_refuse.not_a_trace(source.path, content, error) from None
    except msgspec.DecodeError as error:
        return None, error
    except RecursionError:
        raise refusal(
            source.path, "JSON, but not a trace: nested too deeply", "export it again"
        ) from None
    return Document(found) if isinstance(found, list) else found, None


def _cut(notes: Notes) -> str:
    """Where the file is cut, or may be; "" where it is whole."""
    return next((n.partition(";")[0] for kind, _, n in notes if kind in kineto_repair.CUT), "")


def _timeline(
    source: Source, document: Document, events: Events, notes: Notes, progress: Progress
) -> Timeline:
    progress("build", 0.0)
    rank, _ = rank_and_world(document)
    own = kineto_own.own(document.own)
    times = kineto_times.settle(events, integer(document.base_ns), rank, ours=own is not None)
    if own:
        kineto_own.to_threads(events, own)
    sites: Sites = {}
    calls, lost_syncs = kineto_rows.host_calls(events, times, rank, sites)
    ops = kineto_rows.device_ops(events, times, rank, calls)
    if not len(ops):
        raise kineto_refuse.no_device_ops(source.path, events, calls, _cut(notes))
    ranges, frames = kineto_rows.ranges(events, times, rank, sites)
    steps = kineto_rows.steps(events, times, rank, ranges)
    health = Health.concat([times.health, _losses(events, lost_syncs, notes, rank)])
    events.forget()
    facts = meta(document, source.path.name, times.base_ns, events.labels, ops, calls, ranges)
    tables: dict[str, Table] = {
        "device_ops": ops,
        "host_calls": calls,
        "ranges": ranges,
        "steps": steps,
    }
    if own:
        tables = kineto_own.to_ranks(own, ops, calls, ranges, steps)
        health = Health.concat([kineto_own.health(own), health])
        facts = msgspec.structs.replace(own.meta, source=facts.source)
    timeline = Timeline.of(facts, frames=frames, health=health, **tables)
    progress("build", 1.0)
    return timeline


def _losses(events: Events, lost_syncs: int, notes: Notes, rank: int) -> Health:
    losses = (
        *notes,
        ("mended name", events.mended, "events with bytes that are no text: read, those replaced"),
        ("odd event", events.odd, "read without a field that is not of its type"),
        ("sync row without a call", lost_syncs, "what these waited for is not known"),
    )
    return kineto_times.health(rank, [loss for loss in losses if loss[1]])


@contextmanager
def _no_collector_pauses() -> Iterator[None]:
    # Nothing decoded here is cyclic, and each collection would walk all of it.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


FORMAT = Format("PyTorch profiler JSON (plain, gzip or zstd)", _matches, _read)
