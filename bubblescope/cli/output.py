"""What all commands print with."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from bubblescope.diagnose import Diagnosis


def console() -> Console:
    """A terminal as wide as it is; 100 columns for a pipe or a file."""
    return Console() if sys.stdout.isatty() else Console(width=100)


def show(diagnosis: Diagnosis, *, as_json: bool, top: int) -> None:
    """Print the report of a diagnosis, each finding with the passes that address it."""
    from bubblescope.report import as_json as json_report
    from bubblescope.report import terminal
    from optimizations import passes_for

    passes = {n: passes_for(f.kind, f.call) for n, f in enumerate(diagnosis.findings)}
    if as_json:
        sys.stdout.buffer.write(json_report.to_json(diagnosis, passes))
    else:
        terminal.render(diagnosis, passes, console(), top=top)


def saved(output: Path | None) -> None:
    """Say where the recording went, on stderr."""
    if output is not None:
        click.echo(one_line(f"recording saved as {output}"), err=True)


def one_line(message: str) -> str:
    """The message with what would move the cursor or break the line made a question mark."""
    return "".join(c if c.isprintable() else "?" for c in message)
