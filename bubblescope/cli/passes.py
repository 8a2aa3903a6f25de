"""`bubblescope passes`."""

from __future__ import annotations

import sys

import click

from bubblescope.cli.output import console


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON (docs/doctor.md).")
def passes(as_json: bool) -> None:
    """List the passes: what each does, on which targets, and what it needs."""
    from bubblescope.report import passes as report
    from optimizations import registry

    if as_json:
        sys.stdout.buffer.write(report.to_json(registry.PASSES))
    else:
        report.render(registry.PASSES, console())
