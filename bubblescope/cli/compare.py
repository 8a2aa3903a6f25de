"""`bubblescope compare`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.output import console
from bubblescope.compare import Run
from bubblescope.errors import BubblescopeError


@click.command()
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
@options.window
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON (docs/json.md).")
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1), help="Rows in each table."
)
def compare(
    before: Path,
    after: Path,
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    as_json: bool,
    top: int,
) -> None:
    """Say what changed from recording A to recording B.

    Per step, by kind, by cause, by kernel family and by read site: what appeared, what vanished,
    and what differs by more than steps differ among themselves. A and B are files as `bubblescope
    diagnose` reads them; --window and --marker hold for both. Exit code 0: compared; 2: one of
    them cannot be diagnosed.
    """
    from bubblescope.compare import compare as run
    from bubblescope.report import comparison as report
    from bubblescope.report import comparison_json

    with progress.bar() as show:
        found = run(*(_side(path, window, marker, show) for path in (before, after)))
    if as_json:
        sys.stdout.buffer.write(comparison_json.to_json(found))
    else:
        report.render(found, console(), top=top)


def _side(
    path: Path,
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    show: progress.Show,
) -> Run:
    """One recording, diagnosed; what does not fit says which of the two it is."""
    from bubblescope.ingest import load

    timeline = load(path, progress=show)
    try:
        return Run.of(timeline, marker=marker, window=window, progress=show)
    except BubblescopeError as error:
        raise BubblescopeError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
