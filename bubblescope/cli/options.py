"""Options that several commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bubblescope.cli.output import Output

Command = Callable[..., Any]
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


def names(_context: click.Context, _option: click.Parameter, value: str | None) -> list[str] | None:
    """A list of names with commas between; "none" is the empty one."""
    if value is None:
        return None
    given = [name.strip() for name in value.split(",") if name.strip()]
    return [] if given == ["none"] else given


def window(command: Command) -> Command:
    """--window and --marker of a recording."""
    command = click.option(
        "--marker",
        metavar="NAME",
        help="The range that begins each step (numbers in it left open).",
    )(command)
    return click.option(
        "--window",
        metavar="A:B",
        callback=_steps,
        help="Look at steps A up to, not including, B: --window 2:8.",
    )(command)


def strict(command: Command) -> Command:
    """--strict of a recording that is read."""
    return click.option(
        "--strict",
        is_flag=True,
        help="Refuse a file that is cut or damaged; else say what is lost.",
    )(command)


def html(command: Command) -> Command:
    """--html of a command whose result can be looked at in a browser."""
    return click.option(
        "--html",
        type=click.Path(path_type=Path),
        metavar="FILE.html",
        help="Also write it as a page for a browser: docs/view.md.",
    )(command)


def output(command: Command) -> Command:
    """--json, --top, --launches, -o, --html and --force, which reach it as `output`, checked."""

    @click.option(
        "--json", "as_json", is_flag=True, help="Print the report as JSON (docs/json.md)."
    )
    @click.option(
        "--top", default=10, show_default=True, type=click.IntRange(1), help="Rows in each table."
    )
    @click.option(
        "--launches", is_flag=True, help="Show every figure on launches and queues, not a few."
    )
    @click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        metavar="FILE.bscope",
        help="Also save the recording, for `bubblescope diagnose`.",
    )
    @html
    @click.option("--force", is_flag=True, help="Replace files that exist.")
    @functools.wraps(command)
    def wrapped(
        *,
        as_json: bool,
        top: int,
        launches: bool,
        output: Path | None,
        html: Path | None,
        force: bool,
        **others: Any,
    ) -> Any:
        wanted = Output(as_json, top, output, force, launches, html)
        wanted.check()
        return command(output=wanted, **others)

    return wrapped
