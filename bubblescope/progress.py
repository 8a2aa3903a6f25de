"""Progress on work that takes more than a second; nothing where nobody is looking."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Show = Callable[[str, float], None]
PATIENCE_S = 1.0


@contextmanager
def bar() -> Iterator[Show]:
    """A function to call with (what is being done, share done); draws on stderr, and cleans up.

    Nothing is drawn in the first second, nor where stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _stage, _share: None
        return
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = shown.add_task("reading", total=1.0)
    began = time.monotonic()
    visible = False

    def show(stage: str, share: float) -> None:
        nonlocal visible
        if not visible and time.monotonic() - began > PATIENCE_S:
            shown.start()
            visible = True
        shown.update(task, description=stage, completed=share)

    try:
        yield show
    finally:
        if visible:
            shown.stop()
