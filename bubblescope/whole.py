"""Files written whole or not at all, and never over another unless that is asked for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bubblescope.errors import BubblescopeError
from bubblescope.paths import is_folder, is_there


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to; it takes the name `path` when this exits, and is gone on an error.

    The bytes go to a temporary file beside `path` and take its name in one step, so that no reader
    ever sees half a file and an interrupted run leaves nothing behind.

    Raises:
        BubblescopeError: it cannot be written there.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise BubblescopeError(f"{path}: cannot write here: {error.strerror}") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp made it private
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink()
        if isinstance(error, OSError):
            raise BubblescopeError(f"{path}: not written: {error.strerror}") from None
        raise


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise where `path` exists and may not be replaced, before any work is done for it."""
    if is_folder(path):
        raise BubblescopeError(f"{path}: is a folder; name a file to write")
    if is_there(path) and not force:
        raise BubblescopeError(f"{path}: exists already; --force replaces it")


def refuse_input(path: Path, inputs: Iterable[Path]) -> None:
    """Raise where `path`, to be written, is one of the files that are read."""
    if is_there(path) and any(is_there(p) and path.samefile(p) for p in inputs):
        raise BubblescopeError(f"{path}: is the recording itself; name another file")
