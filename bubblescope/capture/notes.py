"""What a traced process has to say to the command that runs it, beside its recording."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["problem", "idle", "forked"]
UNFINISHED = "a process ended by SIGKILL, an abort or exec, and handed no recording over"
"""Left by a process that records, and withdrawn when its recording is written."""


@dataclass(frozen=True, slots=True)
class Note:
    """One line of one process.

    kind: "problem", always worth a line; "idle", why this process recorded nothing, which matters
    where no other did; "forked", a forked process that used CUDA and could not be recorded.
    """

    process: int
    kind: Kind
    text: str = ""


def write(folder: Path, note: Note) -> None:
    """Leave it for the command; a later note of the process takes its place.

    Nothing where it cannot be written: the program must run as it would have.
    """
    path = folder / f"{note.process}.json"
    with suppress(OSError):
        path.write_text(json.dumps(asdict(note)), encoding="utf-8")


def withdraw(folder: Path, process: int) -> None:
    """Take the note of a process back, if there is one."""
    (folder / f"{process}.json").unlink(missing_ok=True)


def read(folder: Path) -> list[Note]:
    """The notes in a folder, in the order of their files' names."""
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> Note:
    try:
        return Note(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # its disk was full, or it was killed
        return Note(int(path.stem), "problem", "what it had to say is not whole")
