from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.program import decode_loop


@pytest.fixture
def decode(tmp_path: Path) -> Path:
    """Six steps of `decode_loop` in a file, alone in its folder."""
    path = tmp_path / "decode.json"
    path.write_text(json.dumps({"traceEvents": decode_loop()}))
    return path
