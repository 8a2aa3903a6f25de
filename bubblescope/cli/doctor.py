"""`bubblescope doctor`."""

from __future__ import annotations

import sys

import click

from bubblescope.cli.output import console


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON (docs/doctor.md).")
def doctor(as_json: bool) -> None:
    """Say what can be recorded on this machine, and what to do about the rest.

    Nothing runs on a GPU, and no profiler is switched on. Exit code 0, whatever was found.
    """
    from bubblescope.doctor import examine
    from bubblescope.report import doctor as report

    examination = examine()
    if as_json:
        sys.stdout.buffer.write(report.to_json(examination))
    else:
        report.render(examination, console())
