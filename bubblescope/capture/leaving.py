"""os._exit, by which a process leaves without a word: something is done first."""

from __future__ import annotations

import os
from collections.abc import Callable


def before_exit(act: Callable[[], None]) -> None:
    """Call `act` before every os._exit from now on, here and in forked children."""
    leave = os._exit

    def _exit(status: int) -> None:
        try:
            act()
        finally:
            leave(status)

    os._exit = _exit  # type: ignore[assignment]
