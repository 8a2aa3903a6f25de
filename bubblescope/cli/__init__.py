"""The command line, one module a verb: parse, call one function, print what a reporter made."""

from bubblescope.cli.program import cli, main

__all__ = ["cli", "main"]
