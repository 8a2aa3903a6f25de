"""Questions about paths that never fail: a name too long, or a folder closed, is no file."""

from __future__ import annotations

from pathlib import Path


def is_there(path: Path) -> bool:
    """Whether something of that name exists that can be seen."""
    try:
        return path.exists()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether it is a folder that can be seen."""
    try:
        return path.is_dir()
    except OSError:
        return False
