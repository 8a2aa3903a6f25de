"""Foreign files to Timelines: one module a format, found by content, never by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bubblescope.ingest import registry
from bubblescope.ingest.source import Source
from bubblescope.timeline import Timeline

__all__ = ["load"]


def load(path: Path, *, progress: Callable[[str, float], None] | None = None) -> Timeline:
    """The Timeline in a recording: PyTorch profiler JSON, plain or gzipped, or .bscope.

    Args:
        path: the file; it is opened read-only. Its name says nothing about its format.
        progress: called with the name of the stage and the share of it that is done, 0 to 1.

    Raises:
        BubblescopeError: the file cannot be read, or holds no device operation; one line that
            says what, where and what to do next.
    """
    source = Source.open(path)
    return registry.find(source).read(source, progress or (lambda stage, share: None))
