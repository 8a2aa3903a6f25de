"""`bubblescope trace`: record steps of a target or of any program, and diagnose them."""

from __future__ import annotations

import sys
from typing import Literal

import click

from bubblescope import progress
from bubblescope.capture.backend import Prepared
from bubblescope.cli import options
from bubblescope.cli.lines import one_line
from bubblescope.cli.output import Output
from bubblescope.diagnose import diagnose
from bubblescope.errors import BubblescopeError
from bubblescope.targets import registry as targets
from bubblescope.targets.record import record
from bubblescope.targets.target import Target
from bubblescope.tracing import command


def _names(_context: click.Context, _option: click.Parameter, value: str | None) -> list[str]:
    """A list of names with commas between."""
    return [name.strip() for name in value.split(",") if name.strip()] if value else []


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--step", default=200, show_default=True, type=click.IntRange(0), help="First step to record."
)
@click.option(
    "--steps", default=10, show_default=True, type=click.IntRange(1), help="How many steps."
)
@click.option(
    "--target", default=None, metavar="NAME", help="What to run: ling (the default), see README."
)
@click.option(
    "--passes", metavar="A,B", callback=_names, help="Passes to put on it; `bubblescope passes`."
)
@click.option(
    "--device",
    type=click.Choice(["cuda", "cpu"]),
    help="Where the target runs; CUDA if torch has it, else a CPU thread.",
)
@click.option(
    "--accept-length",
    type=click.FloatRange(0),
    help="Simulated acceptance, mean tokens a step; 0: the drafts must be right.",
)
@click.option(
    "--level",
    type=click.Choice(["graph", "node"]),
    default="graph",
    show_default=True,
    help="On CUDA: true times, or the inside of graphs.",
)
@click.option("--marker", metavar="NAME", help="Of a program: the range that begins each step.")
@click.option(
    "--max-operations",
    default=command.MAX_OPERATIONS,
    show_default=True,
    type=click.IntRange(1),
    help="Of a program: records after which a process stops recording.",
)
@options.output
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM [ARGS]...]")
def trace(
    step: int,
    steps: int,
    target: str | None,
    passes: list[str],
    device: Literal["cuda", "cpu"] | None,
    accept_length: float | None,
    level: Literal["graph", "node"],
    marker: str | None,
    max_operations: int,
    words: tuple[str, ...],
    output: Output,
) -> None:
    """Record decode steps, and say where each one's time went.

    Without a program, runs the embedded Ling loop. With one, runs it unchanged and records its
    CUDA work: bubblescope trace --step 200 -- python serve.py. Exit code 0: diagnosed; 2: nothing
    could be recorded; of a program, its own.
    """
    if not words:
        if marker is not None:
            raise BubblescopeError("--marker is for a program; a target marks its own steps")
        made = targets.get(target or "ling", device=device, accept_length=accept_length)
        _target(made, passes, step, steps, level, output)
        return
    for name, value in (
        ("--target", target),
        ("--passes", passes),
        ("--device", device),
        ("--accept-length", accept_length),
    ):
        if value:
            raise BubblescopeError(f"{name} is for a target; leave it out, or the program")
    traced = command.trace(
        words, step=step, steps=steps, level=level, marker=marker, max_operations=max_operations
    )
    for note in traced.notes:
        click.echo(one_line(f"bubblescope: {note}"), err=True)
    if traced.diagnosis is not None and traced.timeline is not None:
        output.save(traced.timeline)
        output.show(traced.diagnosis)
    sys.exit(traced.exit_code or (0 if traced.diagnosis is not None else 2))


def _target(
    target: Target, passes: list[str], step: int, steps: int, level: str, output: Output
) -> None:
    from optimizations.registry import applied

    with progress.bar() as show, applied(passes, target):
        found = target.backends()
        backend = next((b for b in found if b.level == level), found[0])
        if isinstance(backend, Prepared):
            backend.prepare()  # it sees only graphs captured from now on
        show("starting", 0.0)
        target.start()
        try:
            recording = record(target, backend, first=step, steps=steps, progress=show)
        finally:
            target.stop()
        diagnosis = diagnose(recording.timeline, window=recording.window, progress=show)
        output.save(recording.timeline)
    output.show(diagnosis)
