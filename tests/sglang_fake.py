"""Puts the stand-in for SGLang where engines of a test find it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@contextmanager
def installed(**environment: str) -> Iterator[None]:
    """Engines that start inside are the stand-in's, and see these variables."""
    path = [str(TESTS / "fake_sglang"), os.environ.get("PYTHONPATH")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


def engines(folder: Path) -> set[int]:
    """Processes of the engine that writes to this folder, which its environment names."""
    named = f"BUBBLESCOPE_SGLANG={folder}".encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # gone while it was looked at
            if named in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
    return found
