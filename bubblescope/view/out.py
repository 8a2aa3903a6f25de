"""Where pages go: a file that was named, a temporary one, the browser."""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from pathlib import Path

from bubblescope.errors import BubblescopeError
from bubblescope.whole import refuse_existing, written


def check(path: Path, *, force: bool) -> None:
    """Refuse a file that could not be written before any work is done for it.

    Raises:
        BubblescopeError: its name is not that of a page, or it exists already.
    """
    if path.suffix not in (".html", ".htm"):
        raise BubblescopeError(f"{path}: give the page the ending .html")
    refuse_existing(path, force=force)


def save(page: bytes, path: Path) -> None:
    """Write a page, whole or not at all."""
    with written(path) as out:
        out.write(page)


def keep(page: bytes) -> Path:
    """Write a page to a temporary file of its own, which stays for the browser to read."""
    handle, name = tempfile.mkstemp(prefix="bubblescope-", suffix=".html")
    with os.fdopen(handle, "wb") as out:
        out.write(page)
    return Path(name)


def has_display() -> bool:
    """Whether a browser could show something here."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_in_browser(address: str) -> bool:
    """Open it in the browser; False where there is no display or no browser."""
    if not has_display():
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
