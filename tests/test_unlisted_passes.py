"""Passes that are not in the registry: a user's own, by module and class."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bubblescope.errors import BubblescopeError
from optimizations import registry

MODULE = """
from contextlib import nullcontext
from dataclasses import dataclass
from optimizations.passes import PassEntry

@dataclass(frozen=True, slots=True)
class Mine(PassEntry):
    name: str = "whatever it says"
    summary: str = "Does nothing."
    addresses: tuple = ()
    targets: tuple = ("ling",)
    live: bool = True

    def applied(self, target):
        return nullcontext()

NUMBER = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_unlisted_passes.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_unlisted_passes", raising=False)
    return "my_unlisted_passes"


def test_it_is_found_beside_the_program_and_called_by_its_place(module: str) -> None:
    entry = registry.get(f"{module}:Mine")
    assert entry.name == f"{module}:Mine"
    assert entry.summary == "Does nothing."
    assert entry.live
    assert entry not in registry.PASSES
    with registry.applied([f"{module}:Mine"], type("T", (), {"name": "ling"})()):
        pass


def test_for_another_target_it_is_refused(module: str) -> None:
    with (
        pytest.raises(BubblescopeError, match=f"pass {module}:Mine: not made for target sglang"),
        registry.applied([f"{module}:Mine"], type("T", (), {"name": "sglang"})()),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("{}:Other", "has no attribute 'Other'"),
        ("{}:NUMBER", "is not a subclass of"),
        ("{}.deeper:Mine", "is not a package"),
        (":Mine", "Empty module name"),
        ("{}:", "has no attribute ''"),
    ],
)
def test_what_is_no_pass_is_said_in_one_line(name: str, said: str, module: str) -> None:
    with pytest.raises(BubblescopeError, match=said) as failed:
        registry.get(name.format(module))
    assert "\n" not in str(failed.value)
