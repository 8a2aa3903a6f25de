"""`bubblescope export`."""

from __future__ import annotations

from pathlib import Path

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.lines import one_line
from bubblescope.whole import refuse_input


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    required=True,
    type=click.Choice(["chrome", "parquet", "csv"]),
    help="Chrome JSON for Perfetto, or a folder of tables.",
)
@options.window
@options.strict
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where to; FILE's name with another ending, here, where not given.",
)
@click.option("--force", is_flag=True, help="Replace PATH if it exists.")
def export(
    file: Path,
    form: str,
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    strict: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Write a recording and its diagnosis for other tools.

    FILE is anything that `bubblescope diagnose` reads. chrome: one JSON file (gzipped where its
    name ends in .gz) that opens in ui.perfetto.dev, with every operation, the launches that
    started them, and the bubbles with their parts. parquet, csv: a folder with one file a table.
    --window and --marker hold for the diagnosis; the recording is written whole. docs/export.md.
    """
    from bubblescope.diagnose import diagnose
    from bubblescope.export import FORMATS
    from bubblescope.ingest import load

    to = FORMATS[form]
    name = file.resolve().name.split(".")[0] or "recording"
    path = output or Path(name + to.ending)
    refuse_input(path, [file])
    to.check(path, force)
    with progress.bar() as show:
        timeline = load(file, progress=show, strict=strict)
        diagnosis = diagnose(timeline, marker=marker, window=window, progress=show)
        show("writing", 0.0)
        to.write(timeline, diagnosis, path, force)
    click.echo(one_line(f"{form} written to {path}"), err=True)
