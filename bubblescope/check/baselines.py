"""Named baselines: recordings kept under .bubblescope/baselines of the working directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from bubblescope.compare.run import Run, Window
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Timeline, bscope

FOLDER = Path(".bubblescope") / "baselines"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WINDOW, _MARKER = "baseline window", "baseline marker"
"""What `Meta.about` of a baseline keeps, so that it is looked at as it was when it was saved."""


def path_of(name: str) -> Path:
    """The file of a baseline: itself where it ends in .bscope, else in the folder of baselines."""
    if name.endswith(".bscope"):
        return Path(name)
    if not _NAME.fullmatch(name):
        raise BubblescopeError(
            f"{name!r} is no name for a baseline: letters, digits, dots and dashes, or a path that "
            "ends in .bscope"
        )
    return FOLDER / f"{name}.bscope"


def refuse_existing(name: str, *, force: bool) -> None:
    """Raise where it exists and may not be replaced, before any work is done for it."""
    bscope.refuse_existing(path_of(name), force=force)


def save(
    timeline: Timeline, name: str, *, window: Window | None, marker: str | None, force: bool
) -> Path:
    """Keep a recording as a baseline, with the steps and the marker that it was checked by.

    Returns:
        The file that was written.
    """
    path = path_of(name)
    refuse_existing(name, force=force)
    about = dict(timeline.meta.about)
    if window is not None:
        about[_WINDOW] = ":".join("" if end is None else str(end) for end in window)
    if marker is not None:
        about[_MARKER] = marker
    kept = Timeline.of(msgspec.structs.replace(timeline.meta, about=about), **timeline.tables())
    if path.parent == FOLDER:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BubblescopeError(f"{path.parent}: cannot be made: {error.strerror}") from None
    bscope.write(kept, path, force=force)
    return path


def load(
    name: str,
    *,
    window: Window | None = None,
    marker: str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Run:
    """A baseline, diagnosed.

    Args:
        name: its name, or a path that ends in .bscope.
        window: steps to look at in a file that was not saved as a baseline.
        marker: what begins its steps, likewise.
        progress: as of `diagnose`.

    Raises:
        BubblescopeError: there is none, or it cannot be diagnosed.
    """
    path = path_of(name)
    if not path.exists():
        raise BubblescopeError(
            f"{path}: no such baseline; --save-baseline {name} makes one of the run that is checked"
        )
    timeline = bscope.read(path)
    about = timeline.meta.about
    if _WINDOW in about:
        first, _, last = about[_WINDOW].partition(":")
        window = (int(first) if first else None, int(last) if last else None)
    return Run.of(timeline, marker=about.get(_MARKER, marker), window=window, progress=progress)
