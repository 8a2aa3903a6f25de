"""`bubblescope compare`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.output import console, save_page
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
@options.html
@click.option("--force", is_flag=True, help="Replace FILE.html if it exists.")
def compare(
    before: Path,
    after: Path,
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    as_json: bool,
    top: int,
    html: Path | None,
    force: bool,
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

    if html is not None:
        from bubblescope.view import out

        out.check(html, force=force)
    with progress.bar() as show:
        a, b = (side(path, window, marker, show) for path in (before, after))
        found = run(a, b)
    if as_json:
        sys.stdout.buffer.write(comparison_json.to_json(found))
    else:
        report.render(found, console(), top=top)
    if html is not None:
        from bubblescope.cli.shown import shown
        from bubblescope.view import comparison_page

        page = comparison_page(
            shown(a.timeline, a.diagnosis, str(before)),
            shown(b.timeline, b.diagnosis, str(after)),
            found,
        )
        save_page(page, html)


def side(
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
