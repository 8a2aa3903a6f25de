"""Foreign files to Timelines: one module a format, found by content, never by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bubblescope.ingest import registry, together
from bubblescope.ingest.source import Source
from bubblescope.paths import is_folder
from bubblescope.timeline import Timeline

__all__ = ["load", "load_all"]


def load(
    path: Path,
    *,
    progress: Callable[[str, float], None] | None = None,
    strict: bool = False,
) -> Timeline:
    """The Timeline in a recording: of the PyTorch profiler, of Nsight Systems, or .bscope.

    Args:
        path: the file; it is opened read-only. Its name says nothing about its format. A folder is
            read as `load_all` reads it.
        progress: called with the name of the stage and the share of it that is done, 0 to 1.
        strict: refuse a file that is cut or damaged, where otherwise what is whole of it is read
            and `health` says what is missing.

    Raises:
        BubblescopeError: the file cannot be read, or holds no device operation; one line that
            says what, where and what to do next.
    """
    if is_folder(path):
        return load_all([path], progress=progress, strict=strict)
    source = Source.open(path, strict=strict)
    return registry.find(source).read(source, progress or (lambda stage, share: None))


def load_all(
    paths: Sequence[Path],
    *,
    progress: Callable[[str, float], None] | None = None,
    strict: bool = False,
) -> Timeline:
    """One Timeline of several recordings, each of them a rank or several.

    Ranks are those that the files state; else those in their names; else the order of the files.
    A folder stands for the files in it; those that are no recordings are left out, which `health`
    says. Each path is otherwise read as `load` reads it.

    Args:
        paths: files and folders, one at least.
        progress: as for `load`.
        strict: as for `load`; in a folder, a file that is refused is left out.

    Raises:
        BubblescopeError: a file that is named, or every file of a folder, cannot be read.
    """
    show = progress or (lambda stage, share: None)
    if len(paths) == 1 and not is_folder(paths[0]):
        return load(paths[0], progress=progress, strict=strict)

    def one(path: Path, done: Callable[[float], None]) -> Timeline:
        reached = 0.0

        def stage_of_file(stage: str, share: float) -> None:
            nonlocal reached
            reached = max(reached, (share + (stage == "build")) / 2)
            done(reached)

        timeline = load(path, progress=stage_of_file, strict=strict)
        done(1.0)
        return timeline

    return together.load(paths, one, lambda share: show("read", share))
