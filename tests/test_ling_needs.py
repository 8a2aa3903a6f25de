"""Without torch the target says what it needs, in one line."""

from __future__ import annotations

import sys

import pytest

from bubblescope.errors import BubblescopeError
from bubblescope.targets import registry


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m.startswith("bubblescope.targets.ling")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BubblescopeError, match=r"needs torch.*pip install 'bubblescope\[ling\]'"):
        registry.get("ling")
