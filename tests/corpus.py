"""Where the corpus of recorded traces lies, and how a test asks for a file of it."""

from __future__ import annotations

from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[2] / "shared/corpus"


def need(path: Path | str) -> Path:
    """`path` (relative ones inside the corpus), or skip the test and say what is missing."""
    full = CORPUS / path
    if not full.exists():
        pytest.skip(f"corpus file not here: {full}")
    return full
