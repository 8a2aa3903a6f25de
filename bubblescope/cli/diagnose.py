"""`bubblescope diagnose`."""

from __future__ import annotations

from pathlib import Path

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.output import Output
from bubblescope.errors import BubblescopeError


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@options.window
@options.output
def diagnose(
    file: Path,
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    output: Output,
) -> None:
    """Say where each step's time went and what to do about it.

    FILE is a PyTorch profiler recording (.json or .json.gz) or a .bscope file. Times are per step
    first, where steps can be found. Exit code 0: diagnosed; 2: FILE cannot be diagnosed.
    """
    from bubblescope.diagnose import diagnose as run
    from bubblescope.ingest import load

    path = output.path
    if path is not None and path.exists() and file.exists() and path.samefile(file):
        raise BubblescopeError(f"{path}: is the recording itself; name another file")
    with progress.bar() as show:
        timeline = load(file, progress=show)
        diagnosis = run(timeline, marker=marker, window=window, progress=show)
        output.save(timeline)
    output.show(diagnosis, timeline)
