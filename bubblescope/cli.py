"""The commands: parse arguments, call one function, print what a reporter made."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import click
from rich.console import Console

from bubblescope import progress
from bubblescope.errors import BubblescopeError

_STEPS = re.compile(r"^(-?\d+)?:(-?\d+)?$")


def _steps(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> tuple[int | None, int | None] | None:
    """A range of steps, "A:B", either end left open."""
    if value is None:
        return None
    match = _STEPS.match(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a range of steps; write FIRST:LAST, as in 2:8")
    first, last = (None if x is None else int(x) for x in match.groups())
    if first is not None and last is not None and first >= last:
        raise click.BadParameter(f"{value!r} holds no step; the second number must be larger")
    return first, last


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(version("bubblescope"), prog_name="bubblescope")
@click.pass_context
def cli(context: click.Context) -> None:
    """Where did the decode step go? GPU bubbles split exactly, with a cause, a line and a price."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON (docs/json.md).")
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1), help="Rows in each table."
)
@click.option(
    "--window",
    metavar="A:B",
    callback=_steps,
    help="Look at steps A up to, not including, B: --window 2:8.",
)
@click.option(
    "--marker", metavar="NAME", help="The range that begins each step (numbers in it left open)."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.bscope",
    help="Also save the recording as .bscope, which opens much faster.",
)
@click.option("--force", is_flag=True, help="Replace FILE.bscope if it exists.")
def diagnose(
    file: Path,
    as_json: bool,
    top: int,
    window: tuple[int | None, int | None] | None,
    marker: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Say where each step's time went and what to do about it.

    FILE is a PyTorch profiler recording (.json or .json.gz) or a .bscope file. Times are per step
    first, where steps can be found. Exit code 0: diagnosed; 2: FILE cannot be diagnosed.
    """
    from bubblescope.diagnose import diagnose as run
    from bubblescope.ingest import load
    from bubblescope.report import as_json as json_report
    from bubblescope.report import terminal
    from bubblescope.timeline import bscope
    from optimizations import passes_for

    if output is not None:
        if output.suffix != ".bscope":
            raise BubblescopeError(f"{output}: give the file the ending .bscope")
        bscope.refuse_existing(output, force=force)
        if output.exists() and file.exists() and output.samefile(file):
            raise BubblescopeError(f"{output}: is the recording itself; name another file")
    with progress.bar() as show:
        timeline = load(file, progress=show)
        diagnosis = run(timeline, marker=marker, window=window, progress=show)
        if output is not None:
            show("writing", 0.0)
            bscope.write(timeline, output, force=force)
    passes = {n: passes_for(f.kind, f.call) for n, f in enumerate(diagnosis.findings)}
    if as_json:
        sys.stdout.buffer.write(json_report.to_json(diagnosis, passes))
    else:
        terminal.render(diagnosis, passes, _console(), top=top)
    if output is not None:
        click.echo(_one_line(f"recording saved as {output}"), err=True)


def _console() -> Console:
    """A terminal as wide as it is; 100 columns for a pipe or a file."""
    return Console() if sys.stdout.isatty() else Console(width=100)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: the `bubblescope` program."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `bubblescope ... | head` ends quietly
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if sys.stdout is None:
            raise BubblescopeError("standard output is closed; nothing can be printed")
        with cli.make_context("bubblescope", words) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except BubblescopeError as error:
        _fail(str(error))
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "bubblescope"
        message = error.format_message().rstrip(".")
        _fail(f"{message[:1].lower()}{message[1:]}; see {where} --help")
    except click.ClickException as error:
        _fail(error.format_message())
    except OSError as error:
        # What could not be printed would be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"the report could not be printed: {error.strerror or error}")
    except (click.Abort, KeyboardInterrupt):
        click.echo("bubblescope: stopped", err=True)
        sys.exit(130)


def _fail(message: str) -> None:
    """One line, whatever names from outside it holds; exit code 2."""
    click.echo(_one_line(f"bubblescope: {message}"), err=True)
    sys.exit(2)


def _one_line(message: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in message)
