"""`bubblescope check`: budgets and baselines, for CI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.lines import one_line
from bubblescope.cli.output import console
from bubblescope.compare import Run
from bubblescope.errors import BubblescopeError

_PROGRAM = "bubblescope.program"
_BUDGETS = (
    "--max-reads 0, --max-reads-in-all 0, --max-idle 5% or 300us, --max-step 9ms, "
    "--max-launches 50 or --against NAME"
)
_NEEDS = (
    (("window",), ("file",), "a file"),
    (("passes", "device"), ("target",), "a target"),
    (("step", "steps", "level"), ("target", "program"), "a target or a program"),
    (("marker",), ("file", "program"), "a file or a program: a target marks its own steps"),
)
"""Options, what they are for, and that in words."""


class _WithProgram(click.Command):
    """Keeps what follows "--" apart: a file and a program are told apart by nothing else."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what stands before "--"."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_PROGRAM] = tuple(args[at + 1 :]) if at < len(args) else None
        return super().parse_args(ctx, args[:at])


@click.command(cls=_WithProgram)
@click.argument(
    "file", required=False, type=click.Path(path_type=Path), metavar="[FILE | -- PROGRAM [ARGS]...]"
)
@click.option("--max-reads", metavar="N", help="Blocking reads a step.")
@click.option("--max-reads-in-all", metavar="N", help="Blocking reads in the window.")
@click.option("--max-idle", metavar="5%|300us", help="Idle: share of the step, or time a step.")
@click.option("--max-step", metavar="9ms", help="Time a step.")
@click.option("--max-launches", metavar="N", help="Launches of kernels and graphs a step.")
@click.option(
    "--against", metavar="NAME", help="A baseline, or a .bscope file: nothing may be worse."
)
@click.option(
    "--tolerance",
    metavar="5%",
    default="5%",
    show_default=True,
    help="How much worse than the baseline is no worse.",
)
@click.option(
    "--save-baseline", metavar="NAME", help="Keep the recording as a baseline, if it passes."
)
@click.option("--force", is_flag=True, help="Replace a baseline that exists.")
@options.window
@click.option("--target", metavar="NAME", help="Record a target instead of a file: ling.")
@click.option(
    "--passes", metavar="A,B", callback=options.names, help="Of a target: passes to put on it."
)
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="Of a target: where it runs.")
@click.option(
    "--step",
    default=200,
    show_default=True,
    type=click.IntRange(0),
    help="Of a target or program: first step.",
)
@click.option(
    "--steps",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Of a target or program: how many.",
)
@click.option(
    "--level",
    type=click.Choice(["graph", "node"]),
    default="graph",
    show_default=True,
    help="Of a target or program, on CUDA.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON (docs/check.md).")
@click.pass_context
def check(
    context: click.Context,
    file: Path | None,
    max_reads: str | None,
    max_reads_in_all: str | None,
    max_idle: str | None,
    max_step: str | None,
    max_launches: str | None,
    against: str | None,
    tolerance: str,
    save_baseline: str | None,
    force: bool,
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    target: str | None,
    passes: list[str] | None,
    device: Literal["cuda", "cpu"] | None,
    step: int,
    steps: int,
    level: Literal["graph", "node"],
    as_json: bool,
) -> None:
    """Fail where a recording exceeds a budget or is worse than a baseline.

    Checks FILE, a target (--target ling) or a program (-- python serve.py), which are recorded
    first. Exit code 0: within all limits; 1: not, and the lines that failed say where; 2: nothing
    could be checked, or what is limited was not measured.
    """
    from bubblescope.check import Baseline, Budget, baselines, evaluate, units
    from bubblescope.report import check as report

    program: tuple[str, ...] | None = context.meta[_PROGRAM]
    _one_source(file, target, program)
    kind = "file" if file is not None else "target" if target is not None else "program"
    _fitting(context, kind)
    budget = Budget.parse(
        max_reads=max_reads,
        max_reads_in_all=max_reads_in_all,
        max_idle=max_idle,
        max_step=max_step,
        max_launches=max_launches,
    )
    allowed = units.share(tolerance)
    if budget.empty and against is None and save_baseline is None:
        raise BubblescopeError(f"nothing to check; give a budget: {_BUDGETS}")
    if save_baseline is not None:
        baselines.refuse_existing(save_baseline, force=force)
    if against is not None and not baselines.path_of(against).exists():
        baselines.load(against)  # says what is missing before anything is run

    if program is not None:
        run = _of_program(program, step, steps, level, marker)
    elif target is not None:
        run = _of_target(target, passes, device, step, steps, level)
    else:
        run = _of_file(file or Path(), window, marker)
    baseline: Baseline | None = None
    if against is not None:
        with progress.bar() as show:
            before = baselines.load(against, window=run.window, marker=marker, progress=show)
        baseline = Baseline(Path(against).name.removesuffix(".bscope"), before, allowed)
    lines = evaluate(run, budget, baseline)
    source = str(file) if file is not None else run.diagnosis.meta.source
    if as_json:
        sys.stdout.buffer.write(report.to_json(source, lines))
    elif lines:
        report.render(source, lines, console())
    sys.stdout.flush()
    if not all(line.passed for line in lines):
        if save_baseline is not None:
            click.echo("bubblescope: not kept as a baseline: it exceeds a limit", err=True)
        sys.exit(1)
    if save_baseline is not None:
        path = baselines.save(
            run.timeline, save_baseline, window=run.window, marker=marker, force=force
        )
        click.echo(one_line(f"baseline saved as {path}"), err=True)


def _one_source(file: Path | None, target: str | None, program: tuple[str, ...] | None) -> None:
    given = [x for x in (file, target, program) if x is not None]
    if len(given) != 1:
        what = "only one of them" if given else "one of them"
        raise BubblescopeError(
            f"check a file, a target (--target ling) or a program (-- python serve.py): give {what}"
        )


def _fitting(context: click.Context, kind: str) -> None:
    """Refuse options that would do nothing."""
    given = {
        name
        for name in context.params
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    for names, kinds, why in _NEEDS:
        if kind not in kinds:
            for name in sorted(given.intersection(names)):
                raise BubblescopeError(f"--{name} is for {why}; leave it out")
    for name, other in (("tolerance", "against"), ("force", "save_baseline")):
        if name in given and other not in given:
            raise BubblescopeError(f"--{name} goes with --{other.replace('_', '-')}; give that too")


def _of_file(file: Path, window: tuple[int | None, int | None] | None, marker: str | None) -> Run:
    from bubblescope.ingest import load

    with progress.bar() as show:
        timeline = load(file, progress=show)
        return Run.of(timeline, marker=marker, window=window, progress=show)


def _of_target(
    name: str,
    passes: list[str] | None,
    device: Literal["cuda", "cpu"] | None,
    step: int,
    steps: int,
    level: str,
) -> Run:
    from bubblescope.cli.trace import record_target
    from bubblescope.targets import registry as targets

    made = targets.get(name, device=device)
    with progress.bar() as show:
        recording = record_target(made, passes, step, steps, level, show)
        return Run.of(recording.timeline, window=recording.window, progress=show)


def _of_program(
    words: tuple[str, ...],
    step: int,
    steps: int,
    level: Literal["graph", "node"],
    marker: str | None,
) -> Run:
    """The steps asked for of a program that ended well; nothing else is checked in their place."""
    from bubblescope.tracing import command

    traced = command.trace(words, step=step, steps=steps, level=level, marker=marker)
    for note in traced.notes:
        click.echo(one_line(f"bubblescope: {note}"), err=True)
    if traced.exit_code:
        raise BubblescopeError(
            f"nothing was checked: the program ended with exit code {traced.exit_code}"
        )
    if traced.timeline is None or traced.diagnosis is None:
        raise BubblescopeError("nothing was checked: nothing was recorded")
    found = traced.diagnosis.steps
    inside = (found.number >= step) & (found.number < step + steps)
    if not (inside & found.whole).any() or not inside.all():
        raise BubblescopeError(
            f"nothing was checked: steps {step:,} to {step + steps - 1:,} were not recorded whole"
        )
    return Run(traced.timeline, traced.diagnosis, (step, step + steps))
