"""What all commands print with."""

from __future__ import annotations

import sys

from rich.console import Console


def console() -> Console:
    """A terminal as wide as it is; 100 columns for a pipe or a file."""
    return Console() if sys.stdout.isatty() else Console(width=100)


def one_line(message: str) -> str:
    """The message with what would move the cursor or break the line made a question mark."""
    return "".join(c if c.isprintable() else "?" for c in message)
