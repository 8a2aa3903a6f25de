"""`bubblescope diagnose`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from bubblescope import progress
from bubblescope.cli.output import console, one_line
from bubblescope.errors import BubblescopeError

_STEPS = re.compile(r"^(-?\d+)?:(-?\d+)?$")


def _steps(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> tuple[int | None, int | None] | None:
    """A range of steps, "A:B", either end left open."""
    if value is None:
        return None
    match = _STEPS.match(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a range of steps; write FIRST:LAST, as in 2:8")
    first, last = (None if x is None else int(x) for x in match.groups())
    if first is not None and last is not None and first >= last:
        raise click.BadParameter(f"{value!r} holds no step; the second number must be larger")
    return first, last


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON (docs/json.md).")
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1), help="Rows in each table."
)
@click.option(
    "--window",
    metavar="A:B",
    callback=_steps,
    help="Look at steps A up to, not including, B: --window 2:8.",
)
@click.option(
    "--marker", metavar="NAME", help="The range that begins each step (numbers in it left open)."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.bscope",
    help="Also save the recording as .bscope, which opens much faster.",
)
@click.option("--force", is_flag=True, help="Replace FILE.bscope if it exists.")
def diagnose(
    file: Path,
    as_json: bool,
    top: int,
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Say where each step's time went and what to do about it.

    FILE is a PyTorch profiler recording (.json or .json.gz) or a .bscope file. Times are per step
    first, where steps can be found. Exit code 0: diagnosed; 2: FILE cannot be diagnosed.
    """
    from bubblescope.diagnose import diagnose as run
    from bubblescope.ingest import load
    from bubblescope.report import as_json as json_report
    from bubblescope.report import terminal
    from bubblescope.timeline import bscope
    from optimizations import passes_for

    if output is not None:
        if output.suffix != ".bscope":
            raise BubblescopeError(f"{output}: give the file the ending .bscope")
        bscope.refuse_existing(output, force=force)
        if output.exists() and file.exists() and output.samefile(file):
            raise BubblescopeError(f"{output}: is the recording itself; name another file")
    with progress.bar() as show:
        timeline = load(file, progress=show)
        diagnosis = run(timeline, marker=marker, window=window, progress=show)
        if output is not None:
            show("writing", 0.0)
            bscope.write(timeline, output, force=force)
    passes = {n: passes_for(f.kind, f.call) for n, f in enumerate(diagnosis.findings)}
    if as_json:
        sys.stdout.buffer.write(json_report.to_json(diagnosis, passes))
    else:
        terminal.render(diagnosis, passes, console(), top=top)
    if output is not None:
        click.echo(one_line(f"recording saved as {output}"), err=True)
