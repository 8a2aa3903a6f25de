"""`bubblescope diagnose`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.output import Output
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
@click.option(
    "--window",
    metavar="A:B",
    callback=_steps,
    help="Look at steps A up to, not including, B: --window 2:8.",
)
@click.option(
    "--marker", metavar="NAME", help="The range that begins each step (numbers in it left open)."
)
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
    output.show(diagnosis)
