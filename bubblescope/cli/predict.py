"""`bubblescope predict`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.output import console


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--without",
    multiple=True,
    metavar="KIND:NAME",
    help="read:SITE, wait:SITE (the read stays, and does not wait), launch:OPERATION or "
    "host:RANGE (its host work). A site is FILE:LINE, FILE, a function or a call.",
)
@click.option(
    "--speed-up",
    multiple=True,
    metavar="NAME=K",
    help="Operations of a name K times as fast: --speed-up 'fused_moe*=2'.",
)
@click.option(
    "--merge",
    multiple=True,
    metavar="NAME",
    help="Launches of a name in a row, as one.",
)
@click.option(
    "--capture", multiple=True, metavar="RANGE", help="What is launched in a range as one graph."
)
@click.option(
    "--pdl",
    multiple=True,
    is_flag=False,
    flag_value="*",
    metavar="[NAME[=US]]",
    help="Kernels begin before the one ahead has ended, US of each over its tail.",
)
@click.option(
    "--pass",
    "passes",
    multiple=True,
    metavar="NAME",
    help="What a pass says that it does; `bubblescope passes`.",
)
@options.window
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON (docs/json.md).")
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1), help="Rows in each table."
)
def predict(
    file: Path,
    without: tuple[str, ...],
    speed_up: tuple[str, ...],
    merge: tuple[str, ...],
    capture: tuple[str, ...],
    pdl: tuple[str, ...],
    passes: tuple[str, ...],
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    as_json: bool,
    top: int,
) -> None:
    """Say what the step would take if something were different.

    FILE is a recording as `bubblescope diagnose` reads it. All what-ifs given hold together; with
    none, the critical path and the slack of the recording are shown. In a name, * stands for
    anything. Exit code 0: predicted; 1: withheld, since a replay of the recording does not come
    out as recorded, or too much of it is unknown; 2: nothing fits, or FILE cannot be diagnosed.
    """
    from bubblescope.ingest import load
    from bubblescope.predict import parse
    from bubblescope.predict import predict as run
    from bubblescope.predict.whatifs import OfPass
    from bubblescope.report import prediction as report
    from bubblescope.report import prediction_json
    from optimizations import registry

    texts = [*without, *(f"merge:{name}" for name in merge)]
    texts += [f"capture:{name}" for name in capture]
    texts += [f"speed-up:{text}" for text in speed_up]
    texts += [f"pdl:{text}" for text in pdl]
    declared = [OfPass.declared(name, registry.get(name).models) for name in passes]
    what_ifs = [*declared, *map(parse, texts)]
    with progress.bar() as show:
        timeline = load(file, progress=show)
        prediction = run(timeline, what_ifs, marker=marker, window=window, progress=show)
    if as_json:
        sys.stdout.buffer.write(prediction_json.to_json(prediction))
    else:
        report.render(prediction, console(), top=top)
    if prediction.withheld:
        sys.exit(1)
