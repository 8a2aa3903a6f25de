"""`bubblescope diagnose`."""

from __future__ import annotations

from pathlib import Path

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.output import Output
from bubblescope.whole import refuse_input


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@click.option("--rank", type=int, metavar="N", help="Of several ranks: this one alone.")
@options.window
@options.strict
@options.output
def diagnose(
    files: tuple[Path, ...],
    rank: int | None,
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    strict: bool,
    output: Output,
) -> None:
    """Say where each step's time went and what to do about it.

    FILE is a recording of the PyTorch profiler (.json, .gz or .zst) or of Nsight Systems (.sqlite,
    .nsys-rep), a .bscope file, or a folder of them: docs/formats.md. Several are the ranks of one
    run, and figures are summed over them. Times are per step first, where steps can be found. Exit
    code 0: diagnosed; 2: FILE cannot be diagnosed.
    """
    from bubblescope.diagnose import diagnose as run
    from bubblescope.ingest import load_all
    from bubblescope.timeline import ranks

    path = output.path
    if path is not None:
        refuse_input(path, files)
    with progress.bar() as show:
        timeline = load_all(files, progress=show, strict=strict)
        if rank is not None:
            timeline = ranks.only(timeline, rank)
        diagnosis = run(timeline, marker=marker, window=window, progress=show)
        output.save(timeline)
    output.show(diagnosis, timeline, ", ".join(map(str, files)))
