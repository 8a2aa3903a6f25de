"""Messages that stay on one line, whatever names from outside they hold."""

from __future__ import annotations


def one_line(message: str) -> str:
    """The message with what would move the cursor or break the line made a question mark."""
    return "".join(c if c.isprintable() else "?" for c in message)
