"""`bubblescope ablate`: measure passes against each other, and set predictions beside."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.lines import one_line
from bubblescope.cli.output import console
from bubblescope.errors import BubblescopeError

if TYPE_CHECKING:
    from bubblescope.ablate.ablation import Ablation
    from bubblescope.ablate.plan import Plan
    from bubblescope.timeline import Timeline


def _groups(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> tuple[tuple[str, ...], ...] | None:
    """Names with commas between; those with a + between go together."""
    if value is None:
        return None
    named = [word for word in value.split(",") if word.strip()]
    return tuple(tuple(n.strip() for n in word.split("+") if n.strip()) for word in named)


@click.command()
@click.option("--target", metavar="NAME", help="What to run: ling (the default) or sglang.")
@click.option(
    "--passes",
    metavar="A,B",
    callback=_groups,
    help="Passes to measure, in order; all of the target where not given. A+B go on together; "
    "package.module:Class is a pass of your own.",
)
@click.option(
    "--ladder",
    type=click.Choice(["cumulative", "alone", "leave-one-out"]),
    help="Each added to those before (the default), each against none, or all but each.",
)
@click.option("--starts", type=click.IntRange(1), help="Starts a side; 3 where not given.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds of each start; 5.")
@click.option("--steps", type=click.IntRange(1), help="Timed steps of each round; 200.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="Where the target runs.")
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
@click.option("--layers", type=click.IntRange(1), help="Of ling: only so many layers.")
@click.option(
    "--engine",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of sglang: an argument of sglang.Engine; may be repeated.",
)
@click.option(
    "--weights",
    type=click.Choice(["spread", "dummy"]),
    help="Of sglang without weights: scaled so that routing spreads (the default), or SGLang's.",
)
@click.option("--no-gates", is_flag=True, help="Measure only; correctness is then not tested.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Keep every sample, after each start and at Ctrl-C, for --resume.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Go on with the plan in FILE, and keep the rest in it too; --starts may add to it.",
)
@click.option(
    "--recordings",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep the short recording of each row there.",
)
@options.html
@click.option(
    "--force", is_flag=True, help="Replace what --out, --recordings and --html name if it exists."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "csv"]),
    default="table",
    show_default=True,
    help="What to print.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON (docs/json.md).")
def ablate(
    target: str | None,
    passes: tuple[tuple[str, ...], ...] | None,
    ladder: str | None,
    starts: int | None,
    rounds: int | None,
    steps: int | None,
    device: Literal["cuda", "cpu"] | None,
    accept_length: float | None,
    model: str | None,
    tp: int | None,
    layers: int | None,
    engine: tuple[str, ...],
    weights: str | None,
    no_gates: bool,
    out: Path | None,
    resume: Path | None,
    recordings: Path | None,
    html: Path | None,
    force: bool,
    form: str,
    as_json: bool,
) -> None:
    """Measure what each pass brings: interleaved rounds, intervals, prediction beside.

    The plan and how long it takes are printed first, on standard error. Nothing is recorded in the
    timed rounds. Exit code 0: measured; 1: measured, and a pass failed its gate; 2: could not be
    measured.
    """
    from bubblescope.ablate import ablation, run
    from bubblescope.ablate.samples import Samples, save
    from bubblescope.ablate.setup import begin, go_on
    from bubblescope.report import ablation as report
    from bubblescope.timeline import bscope

    if as_json and form != "table":
        raise BubblescopeError("--json and --format are two forms of the same; give one")
    chosen = {
        "device": device,
        "accept_length": accept_length,
        "model": model,
        "tp": tp,
        "layers": layers,
        "engine": list(engine) or None,  # as the file of samples has it
        "weights": weights,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    shape = {"starts": starts, "rounds": rounds, "steps": steps}
    if resume is not None:
        samples = go_on(resume, target, given, passes, ladder, shape)
        path: Path | None = out or resume
    else:
        samples = begin(target or "ling", given, passes, ladder or "cumulative", shape)
        path = out
    _refuse(path, resume, force)
    kept = _places(recordings, samples.plan, force)
    if html is not None:
        from bubblescope.view import out as pages

        pages.check(html, force=force)
    windows: dict[int, tuple[Timeline, tuple[int, int]]] = {}
    steps_of: dict[int, tuple[int, int]] = {}

    def recorded(rung: int, timeline: Timeline, window: tuple[int, int]) -> None:
        if html is not None:
            windows[rung] = timeline, window
        if recordings is not None:
            bscope.write(timeline, kept[rung], force=force)
            steps_of[rung] = window

    for line in ablation.left_out(samples):
        _say(line)
    _say(f"plan: {report.plan(samples.plan)}")

    kept_in: Path | None = resume  # a file of another run may be where --out --force will write

    def keep(found: Samples) -> None:
        nonlocal kept_in
        if path is not None and (found.rounds or found.checked):
            save(found, path)
            kept_in = path

    with progress.bar() as show:
        try:
            samples = run.run(
                samples,
                gates=not no_gates,
                keep=keep,
                estimated=lambda s: _say(f"about {_minutes(s)} for the timed rounds"),
                recorded=recorded,
                progress=show,
            )
        except KeyboardInterrupt:
            if kept_in is not None:
                _say(f"bubblescope: finished rounds are in {kept_in}; --resume {kept_in} goes on")
            raise
    made = ablation.summarise(samples)
    _show(made, form, as_json)
    if path is not None:
        _say(f"samples saved as {path}")
    if recordings is not None:
        _say(
            f"recordings of {len(steps_of)} rows saved in {recordings}"
            + "".join(f"; look at --window {a}:{b}" for a, b in dict.fromkeys(steps_of.values()))
        )
    if html is not None:
        _show_page(made, windows, html)
    if made.failed:
        sys.exit(1)


def _show_page(
    made: Ablation, windows: dict[int, tuple[Timeline, tuple[int, int]]], path: Path
) -> None:
    """The table as a page, with the short recordings that were made in this run."""
    import msgspec

    from bubblescope.cli.output import save_page
    from bubblescope.cli.shown import shown
    from bubblescope.diagnose import diagnose
    from bubblescope.report import ablation_files as files
    from bubblescope.view import ablation_page

    told = msgspec.json.decode(files.to_json(made), type=files.AblationJson)
    traces = {
        rung: shown(timeline, diagnose(timeline, window=window), told.rows[rung].label)
        for rung, (timeline, window) in windows.items()
    }
    save_page(ablation_page(told, traces), path)


def _show(made: Any, form: str, as_json: bool) -> None:
    from bubblescope.report import ablation as report
    from bubblescope.report import ablation_files as files

    if as_json:
        sys.stdout.buffer.write(files.to_json(made))
    elif form == "csv":
        click.echo(files.to_csv(made), nl=False)
    elif form == "markdown":
        click.echo(files.to_markdown(made), nl=False)
    else:
        report.render(made, console())


def _refuse(path: Path | None, resume: Path | None, force: bool) -> None:
    """Refuse what could not be saved before any work is done for it."""
    from bubblescope.whole import refuse_existing

    if path is None:
        return
    if path.suffix != ".json":
        raise BubblescopeError(f"{path}: give the file the ending .json")
    if not path.parent.is_dir():
        raise BubblescopeError(f"{path}: there is no folder {path.parent}")
    if path != resume:
        refuse_existing(path, force=force)


def _places(folder: Path | None, plan: Plan, force: bool) -> dict[int, Path]:
    """Where the recording of each row goes, in a folder that is made."""
    from bubblescope.whole import refuse_existing

    if folder is None:
        return {}
    names = [re.sub(r"[^\w.-]+", "-", rung.label).strip("-") for rung in plan.rungs]
    found = {n: folder / f"{n}-{name}.bscope" for n, name in enumerate(names)}
    for path in found.values():
        refuse_existing(path, force=force)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BubblescopeError(f"{folder}: cannot be made: {error.strerror}") from None
    return found


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _say(message: str) -> None:
    click.echo(one_line(message), err=True)
