"""The program: its commands, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

import click

from bubblescope.cli.lines import one_line
from bubblescope.errors import BubblescopeError

COMMANDS = (
    "trace",
    "diagnose",
    "predict",
    "compare",
    "view",
    "check",
    "ablate",
    "kernels",
    "doctor",
    "passes",
    "export",
)
"""Every command, in the order of the help text; each is a module of that name beside this one."""


class _Commands(click.Group):
    """Imports a command when it is asked for, so that none pays for another's imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(import_module(f"bubblescope.cli.{cmd_name}"), cmd_name)
        return found


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(version("bubblescope"), prog_name="bubblescope")
@click.pass_context
def cli(context: click.Context) -> None:
    """Where did the decode step go? GPU bubbles split exactly, with a cause, a line and a price."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


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
        message = " ".join(error.format_message().split()).rstrip(".")
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
    click.echo(one_line(f"bubblescope: {message}"), err=True)
    sys.exit(2)
