"""Where a command's result goes: the report to standard output, the recording to a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from bubblescope.cli.lines import one_line
from bubblescope.diagnose import Diagnosis
from bubblescope.errors import BubblescopeError
from bubblescope.timeline import Timeline, bscope


@dataclass(frozen=True, slots=True)
class Output:
    """What the options --json, --top, --launches, -o, --html and --force ask for."""

    as_json: bool
    top: int
    path: Path | None
    force: bool
    launches: bool = False
    html: Path | None = None

    def check(self) -> None:
        """Refuse what could not be saved before any work is done for it."""
        if self.html is not None:
            from bubblescope.view import out

            out.check(self.html, force=self.force)
        if self.path is None:
            return
        if self.path.suffix != ".bscope":
            raise BubblescopeError(f"{self.path}: give the file the ending .bscope")
        bscope.refuse_existing(self.path, force=self.force)

    def save(self, timeline: Timeline) -> None:
        """Write the recording, where that was asked for."""
        if self.path is not None:
            bscope.write(timeline, self.path, force=self.force)

    def show(self, diagnosis: Diagnosis, timeline: Timeline, label: str = "") -> None:
        """Print the report: findings by what they would save, with the passes that address them.

        label: what a page calls the recording, where not by its source.
        """
        from bubblescope.cli.shown import shown
        from bubblescope.report import as_json, terminal

        found = shown(timeline, diagnosis, label)
        if self.as_json:
            sys.stdout.buffer.write(as_json.to_json(found.diagnosis, found.passes))
        else:
            terminal.render(
                found.diagnosis, found.passes, console(), top=self.top, launches=self.launches
            )
        if self.path is not None:
            click.echo(one_line(f"recording saved as {self.path}"), err=True)
        if self.html is not None:
            from bubblescope.view import diagnosis_page

            save_page(diagnosis_page(found), self.html)

    def keep(self, timeline: Timeline, show: Callable[[Output], None]) -> None:
        """Save a recording that is nowhere else, and `show` what came of it, saved or not.

        Raises:
            BubblescopeError: it could not be saved; all else was shown.
        """
        try:
            self.save(timeline)
        except BubblescopeError:
            show(replace(self, path=None))
            raise
        show(self)


def save_page(page: bytes, path: Path) -> None:
    """Write a page that was asked for, and say so."""
    from bubblescope.view import out

    out.save(page, path)
    click.echo(one_line(f"page saved as {path}"), err=True)


def console() -> Console:
    """A terminal as wide as it is; 100 columns for a pipe or a file."""
    return Console() if sys.stdout.isatty() else Console(width=100)
