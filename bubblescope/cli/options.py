"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bubblescope.errors import BubblescopeError

Command = Callable[..., Any]


def report(command: Command) -> Command:
    """--json and --top."""
    command = click.option(
        "--top", default=10, show_default=True, type=click.IntRange(1), help="Rows in each table."
    )(command)
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the report as JSON (docs/json.md)."
    )(command)


def saving(command: Command) -> Command:
    """-o FILE.bscope and --force."""
    command = click.option("--force", is_flag=True, help="Replace FILE.bscope if it exists.")(
        command
    )
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        metavar="FILE.bscope",
        help="Also save the recording as .bscope, which `bubblescope diagnose` opens.",
    )(command)


def check_output(output: Path | None, *, force: bool) -> None:
    """Refuse what could not be saved before any work is done for it."""
    from bubblescope.timeline import bscope

    if output is None:
        return
    if output.suffix != ".bscope":
        raise BubblescopeError(f"{output}: give the file the ending .bscope")
    bscope.refuse_existing(output, force=force)
