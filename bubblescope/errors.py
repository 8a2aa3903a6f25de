"""The one error type that a user sees."""

from __future__ import annotations


class BubblescopeError(Exception):
    """Something a user can act on: one line that says what, where and what to do next.

    The command line prints it as it is and exits with 2; it never shows a traceback.
    """
