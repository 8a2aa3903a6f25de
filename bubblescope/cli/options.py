"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bubblescope.cli.output import Output

Command = Callable[..., Any]


def output(command: Command) -> Command:
    """--json, --top, -o and --force, which reach the command as `output`, checked."""

    @click.option(
        "--json", "as_json", is_flag=True, help="Print the report as JSON (docs/json.md)."
    )
    @click.option(
        "--top", default=10, show_default=True, type=click.IntRange(1), help="Rows in each table."
    )
    @click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        metavar="FILE.bscope",
        help="Also save the recording, for `bubblescope diagnose`.",
    )
    @click.option("--force", is_flag=True, help="Replace FILE.bscope if it exists.")
    @functools.wraps(command)
    def wrapped(*, as_json: bool, top: int, output: Path | None, force: bool, **others: Any) -> Any:
        wanted = Output(as_json, top, output, force)
        wanted.check()
        return command(output=wanted, **others)

    return wrapped
