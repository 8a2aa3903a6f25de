"""Which files of a folder are recordings of one run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from bubblescope.errors import BubblescopeError
from bubblescope.ingest.source import refusal
from bubblescope.timeline import Timeline

Read = Callable[[Path, Callable[[float], None]], Timeline]
"""Reads one file; is given a function to call with the share of it that is done."""

_REPORTS = (".nsys-rep", ".qdrep")
_PACKED = (".gz", ".zst")


def files(folder: Path) -> list[Path]:
    """The files in a folder, in the order of their names, numbers in them by their size.

    Hidden files are left out, and what would be read twice: Nsight Systems reports beside their own
    export, packed files beside the same unpacked, links to other files in the folder.
    """
    try:
        found = [p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")]
        inside = sorted(p.name for p in folder.iterdir() if p.is_dir())
    except OSError as error:
        raise refusal(
            folder, f"cannot be read ({error.strerror})", "check its permissions"
        ) from None
    exported = {p.stem for p in found if p.suffix == ".sqlite"}
    names = {p.name for p in found}
    found = [
        p
        for p in found
        if not (p.suffix in _REPORTS and p.stem in exported)
        and not (p.suffix in _PACKED and p.stem in names)
    ]
    links = {p.name: p.resolve() for p in found if p.is_symlink()}
    targets = {p.resolve(): p.name for p in sorted(found, key=lambda p: p.name not in links)}
    found = [p for p in found if p.name not in links or targets[links[p.name]] == p.name]
    if not found:
        where = f", only folders: {', '.join(inside[:5])}" if inside else ""
        raise refusal(folder, f"is a folder without files{where}", "name one that holds recordings")
    return sorted(found, key=lambda path: _by_number(path.name))


def read(
    folder: Path, one: Read, progress: Callable[[float], None]
) -> tuple[list[tuple[Path, Timeline]], list[str]]:
    """Every recording in a folder, and what is said of each file that is none.

    Raises:
        BubblescopeError: not one of them can be read.
    """
    paths = files(folder)
    timelines, refused = [], []

    def share_of(number: int) -> Callable[[float], None]:
        return lambda share: progress((number + share) / len(paths))

    for number, path in enumerate(paths):
        try:
            timeline = one(path, share_of(number))
        except BubblescopeError as error:
            problem, _, _ = str(error).removeprefix(f"{path}: ").partition("; ")
            refused.append(f"{path.name} {problem}")
        else:
            timelines.append((path, timeline))
    if not timelines:
        noun = "file" if len(paths) == 1 else f"{len(paths):,} files"
        raise refusal(folder, f"no recording among its {noun}", f"the first, {refused[0]}")
    return timelines, refused


def _by_number(name: str) -> list[tuple[int, str]]:
    """Sorts rank10 after rank2."""
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in re.split(r"([0-9]+)", name)]
