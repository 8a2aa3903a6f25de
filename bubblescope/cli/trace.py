"""`bubblescope trace`: record steps of a target or of any program, and diagnose them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal

import click

from bubblescope import progress
from bubblescope.capture.backend import Prepared
from bubblescope.cli import attached, options
from bubblescope.cli.lines import one_line
from bubblescope.cli.output import Output
from bubblescope.diagnose import diagnose
from bubblescope.errors import BubblescopeError
from bubblescope.targets import registry as targets
from bubblescope.targets.record import Recording, RecordsItself, record
from bubblescope.targets.target import Target
from bubblescope.tracing import command


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--step", default=200, show_default=True, type=click.IntRange(0), help="First step to record."
)
@click.option(
    "--steps", default=10, show_default=True, type=click.IntRange(1), help="How many steps."
)
@click.option(
    "--target", default=None, metavar="NAME", help="What to run: ling (the default) or sglang."
)
@click.option(
    "--passes",
    metavar="A,B",
    callback=options.names,
    help="Passes to put on it, or none; sglang is as it ships where not given.",
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
@click.option("--model", metavar="PATH", help="A checkpoint's directory; random weights else.")
@click.option(
    "--tp",
    type=click.IntRange(1),
    help="Tensor-parallel ranks; of these, ling runs the first one's slice of --model.",
)
@click.option(
    "--engine",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of sglang: an argument of sglang.Engine; may be repeated.",
)
@click.option("--attach", metavar="URL", help="Record SGLang's server that runs at this address.")
@click.option(
    "--api-key", envvar="SGLANG_API_KEY", metavar="KEY", help="Of that server, if it wants one."
)
@click.option(
    "--no-request", is_flag=True, help="Send that server none, and wait for its own traffic."
)
@click.option(
    "--weights",
    type=click.Choice(["spread", "dummy"]),
    help="Of sglang without weights: scaled so that routing spreads (the default), or SGLang's.",
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
@click.option(
    "--max-seconds",
    default=command.MAX_SECONDS,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="The same where torch.profiler must stand in for CUPTI, from the first use of CUDA on.",
)
@options.output
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM [ARGS]...]")
def trace(
    step: int,
    steps: int,
    target: str | None,
    passes: list[str] | None,
    device: Literal["cuda", "cpu"] | None,
    accept_length: float | None,
    model: str | None,
    tp: int | None,
    engine: tuple[str, ...],
    weights: str | None,
    attach: str | None,
    api_key: str | None,
    no_request: bool,
    level: Literal["graph", "node"],
    marker: str | None,
    max_operations: int,
    max_seconds: float,
    words: tuple[str, ...],
    output: Output,
) -> None:
    """Record decode steps, and say where each one's time went.

    Without a program, runs the embedded Ling loop. With one, runs it unchanged and records its
    CUDA work: bubblescope trace --step 200 -- python serve.py. Exit code 0: diagnosed; 2: nothing
    could be recorded; of a program, its own.
    """
    if attach is not None:
        if words:
            raise BubblescopeError("--attach records a server; leave it out, or the program")
        attached.trace(attach, api_key, target, no_request, step, steps, output)
        return
    attached.refuse_without_url()
    if not words:
        if marker is not None:
            raise BubblescopeError("--marker is for a program; a target marks its own steps")
        made = targets.get(
            target or "ling",
            device=device,
            accept_length=accept_length,
            model=model,
            tp=tp,
            engine=engine or None,
            weights=weights,
        )
        _target(made, passes, step, steps, level, output)
        return
    for name, value in (
        ("--target", target),
        ("--passes", passes),
        ("--device", device),
        ("--accept-length", accept_length),
        ("--model", model),
        ("--tp", tp),
        ("--engine", engine),
        ("--weights", weights),
    ):
        if value:
            raise BubblescopeError(f"{name} is for a target; leave it out, or the program")
    traced = command.trace(
        words,
        step=step,
        steps=steps,
        level=level,
        marker=marker,
        max_operations=max_operations,
        max_seconds=max_seconds,
    )
    for note in traced.notes:
        click.echo(one_line(f"bubblescope: {note}"), err=True)
    diagnosis, timeline = traced.diagnosis, traced.timeline
    if diagnosis is not None and timeline is not None:
        try:
            output.keep(timeline, lambda out: out.show(diagnosis, timeline))
        except BubblescopeError as error:
            click.echo(one_line(f"bubblescope: {error}"), err=True)
            sys.exit(traced.exit_code or 2)
    sys.exit(traced.exit_code or (0 if traced.diagnosis is not None else 2))


def _target(
    target: Target, passes: list[str] | None, step: int, steps: int, level: str, output: Output
) -> None:
    with progress.bar() as show:
        recording = record_target(target, passes, step, steps, level, show)
        diagnosis = diagnose(recording.timeline, window=recording.window, progress=show)
    output.keep(recording.timeline, lambda out: out.show(diagnosis, recording.timeline))


def record_target(
    target: Target,
    passes: list[str] | None,
    step: int,
    steps: int,
    level: str,
    show: Callable[[str, float], None],
) -> Recording:
    """Run a target with passes on it up to the steps asked for, record these, and stop it."""
    from optimizations.registry import applied

    if passes is not None and hasattr(target, "as_shipped"):
        target.as_shipped = False
    with applied(passes or [], target):
        try:
            return _recording(target, step, steps, level, show)
        finally:
            target.stop()


def _recording(
    target: Target, step: int, steps: int, level: str, show: Callable[[str, float], None]
) -> Recording:
    show("starting", 0.0)
    if isinstance(target, RecordsItself):
        return target.record(level, step, steps, show)
    found = target.backends()
    backend = next((b for b in found if b.level == level), found[0])
    if isinstance(backend, Prepared):
        backend.prepare()  # it sees only graphs captured from now on
    target.start()
    return record(target, backend, first=step, steps=steps, progress=show)
