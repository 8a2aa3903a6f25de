"""`bubblescope kernels`: how long each kernel of a step takes, and what share of the step."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.lines import one_line
from bubblescope.cli.output import Output, console
from bubblescope.errors import BubblescopeError
from bubblescope.kernels.model import Kernels
from bubblescope.paths import is_there
from bubblescope.whole import refuse_input

TARGET = "ling"
"""The target that can be measured kernel by kernel."""


@click.command()
@click.argument("what", metavar="FILE_OR_TARGET")
@click.option(
    "--by",
    type=click.Choice(["name", "family"]),
    default="name",
    show_default=True,
    help="One row a kernel, or one for all instances of a function.",
)
@options.window
@click.option("--step", type=click.IntRange(0), help="Of a target: first step.  [default: 200]")
@click.option("--steps", type=click.IntRange(1), help="Of a target: how many.  [default: 10]")
@click.option(
    "--device",
    type=click.Choice(["cuda", "cpu"]),
    help="Of a target: where it runs; CUDA if torch has it, else a CPU thread.",
)
@click.option("--passes", metavar="A,B", help="Of a target: passes to put on it.")
@click.option(
    "--accept-length",
    type=click.FloatRange(0),
    help="Of a target: simulated acceptance, mean tokens a step.",
)
@click.option("--layers", type=click.IntRange(1), help="Of a target: only so many layers.")
@click.option(
    "--nsight/--no-nsight",
    default=None,
    help="Of a target on CUDA: measure with nsight-python too, or not.  [default: nsight]",
)
@click.option("--dram", is_flag=True, help="Of a target on CUDA: DRAM throughput of hot kernels.")
@click.option(
    "--dram-launches",
    type=click.IntRange(1),
    help="Kernel launches that ncu profiles at most.  [default: 500]",
)
@options.output
def kernels(
    what: str,
    by: Literal["name", "family"],
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    step: int | None,
    steps: int | None,
    device: Literal["cuda", "cpu"] | None,
    passes: str | None,
    accept_length: float | None,
    layers: int | None,
    nsight: bool | None,
    dram: bool,
    dram_launches: int | None,
    output: Output,
) -> None:
    """Say how long each kernel of a step takes, and what share of the step it has.

    FILE_OR_TARGET is a recording, as `bubblescope diagnose` reads it, or `ling`: the embedded loop
    is run, recorded at node level, and on CUDA measured with nsight-python beside. Exit code 0:
    measured; 2: it could not be.
    """
    if what != TARGET:
        of_target = {
            "--step": step,
            "--steps": steps,
            "--device": device,
            "--passes": passes,
            "--accept-length": accept_length,
            "--layers": layers,
            "--nsight": nsight,
            "--dram": dram or None,
            "--dram-launches": dram_launches,
        }
        _refuse(of_target, f"is for a target; leave it out, or name {TARGET} instead of a file")
        _show(_of_file(Path(what), by, window, marker, output), output)
        return
    given = {"--window": window, "--marker": marker}
    _refuse(given, "is for a file; a target marks its own steps")
    if dram_launches is not None and not dram:
        raise BubblescopeError("--dram-launches is for --dram; add it, or leave this out")
    from bubblescope.kernels.asked import Run
    from bubblescope.kernels.target import DRAM_LAUNCHES
    from bubblescope.kernels.target import kernels as measured

    names = [name.strip() for name in (passes or "").split(",")]
    run = Run(
        device=device,
        passes=tuple(name for name in names if name),
        accept_length=accept_length,
        layers=layers,
        step=200 if step is None else step,
        steps=10 if steps is None else steps,
    )
    with progress.bar() as show:
        timeline, table = measured(
            run,
            by=by,
            nsight=nsight is not False,
            dram=dram,
            dram_launches=dram_launches or DRAM_LAUNCHES,
            show=show,
        )
    output.keep(timeline, lambda out: _show(table, out))


def _refuse(given: Mapping[str, object], why: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise BubblescopeError(f"{name} {why}")


def _of_file(
    file: Path,
    by: str,
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    output: Output,
) -> Kernels:
    from bubblescope.diagnose import diagnose
    from bubblescope.ingest import load
    from bubblescope.kernels import tabulate

    if not is_there(file) and not file.suffix:
        raise BubblescopeError(f"{file}: no such file, and no such target; there is: {TARGET}")
    path = output.path
    if path is not None:
        refuse_input(path, [file])
    with progress.bar() as show:
        timeline = load(file, progress=show)
        diagnosis = diagnose(timeline, marker=marker, window=window, progress=show)
        table = tabulate(timeline, diagnosis, by=by)
        output.save(timeline)
    return table


def _show(table: Kernels, output: Output) -> None:
    from bubblescope.report import kernels as report

    if output.as_json:
        sys.stdout.buffer.write(report.to_json(table))
    else:
        report.render(table, console(), top=output.top)
    if output.path is not None:
        click.echo(one_line(f"recording saved as {output.path}"), err=True)
