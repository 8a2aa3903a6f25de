"""PyTorch profiler traces: the JSON that Kineto writes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from bubblescope.ingest import kineto_refuse, kineto_rows
from bubblescope.ingest.codes import integer
from bubblescope.ingest.format import Format, Progress
from bubblescope.ingest.kineto_events import Events, decode
from bubblescope.ingest.kineto_meta import Document, meta, rank_and_world
from bubblescope.ingest.kineto_times import health, settle
from bubblescope.ingest.source import Source, refusal
from bubblescope.timeline import Health, Timeline

_BOM = b"\xef\xbb\xbf"


def _matches(head: bytes) -> bool:
    return head.removeprefix(_BOM).lstrip()[:1] in (b"{", b"[")


def _read(source: Source, progress: Progress) -> Timeline:
    with _no_collector_pauses():
        document, events = _events(source, progress)
        return _timeline(source, document, events, progress)


def _events(source: Source, progress: Progress) -> tuple[Document, Events]:
    """The decoded file; its text is freed on return, before the tables are built."""
    content = source.read(lambda share: progress("read", share))
    document = _document(source, content)
    pieces = document.trace_events
    total = len(pieces)
    events = decode(pieces, lambda share: progress("decode", share))
    if not sum(events.categories.values()):
        raise kineto_refuse.no_events(source.path, total)
    return document, events


def _document(source: Source, content: bytearray) -> Document:
    if content.startswith(_BOM):
        content[:3] = b"   "  # white space, so that byte offsets stay those of the file
    try:
        found = msgspec.json.decode(content, type=Document | list[msgspec.Raw])
    except msgspec.ValidationError as error:
        raise kineto_refuse.not_a_trace(source.path, content, error) from None
    except msgspec.DecodeError as error:
        raise kineto_refuse.not_json(source.path, content, error) from None
    except RecursionError:
        raise refusal(
            source.path, "JSON, but not a trace: nested too deeply", "export it again"
        ) from None
    return Document(found) if isinstance(found, list) else found


def _timeline(source: Source, document: Document, events: Events, progress: Progress) -> Timeline:
    progress("build", 0.0)
    rank, _ = rank_and_world(document)
    times = settle(events, integer(document.base_ns), rank)
    calls, lost_syncs = kineto_rows.host_calls(events, times, rank)
    ops = kineto_rows.device_ops(events, times, rank, calls)
    if not len(ops):
        raise kineto_refuse.no_device_ops(source.path, events, calls)
    ranges, frames = kineto_rows.ranges(events, times, rank)
    timeline = Timeline.of(
        meta(document, source.path.name, times.base_ns, events.labels, ops, calls, ranges),
        device_ops=ops,
        host_calls=calls,
        ranges=ranges,
        frames=frames,
        steps=kineto_rows.steps(ranges),
        health=Health.concat([times.health, _losses(events, lost_syncs, rank)]),
    )
    progress("build", 1.0)
    return timeline


def _losses(events: Events, lost_syncs: int, rank: int) -> Health:
    losses = (
        ("unreadable event", events.unreadable, "dropped: these could not be decoded"),
        ("sync row without a call", lost_syncs, "what these waited for is not known"),
    )
    return health(rank, [loss for loss in losses if loss[1]])


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


FORMAT = Format("PyTorch profiler JSON (plain or gzipped)", _matches, _read)
