"""What Triton's compiler makes of the kernels for Hopper, which needs no GPU."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("torch")

import optimizations.kernels
from optimizations.kernels.lint import Reads
from tests.hopper_kernels import read_early

ROOT = Path(__file__).parent.parent
REGISTERS, SHARED = 65_536, 227 * 1024
"""Of a multiprocessor; shared memory of one program at most."""


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """Every launch of a rank with 6 tokens."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.hopper_kernels", "6"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    made: list[dict[str, Any]] = json.loads(said)
    return made


def _declared() -> dict[str, Reads]:
    found: dict[str, Reads] = {}
    for path in Path(optimizations.kernels.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BEFORE_WAIT":
                found |= eval(ast.unparse(node.value), {"Reads": Reads})
    return found


def test_every_kernel_waits_and_then_lets_the_next_begin(compiled: list[dict[str, Any]]) -> None:
    assert len(compiled) == 17
    assert all(made["ordered"] for made in compiled)


def test_the_compiler_moved_no_load_before_the_wait(compiled: list[dict[str, Any]]) -> None:
    declared = _declared()
    for made in compiled:
        assert set(made["early"]) <= declared.get(made["name"], Reads()).names, made["name"]


def test_weights_are_on_their_way_before_the_wait(compiled: list[dict[str, Any]]) -> None:
    early = {made["name"]: made["early"] for made in compiled}
    for kernel in ("_project", "_gate", "_draft_input"):
        assert early[kernel] == ["weight"]
    assert early["_out_of"] == ["shared"]
    assert {"conv", "state"} <= set(early["_staged_kda"])


def test_they_fit_and_nothing_spills(compiled: list[dict[str, Any]]) -> None:
    for made in compiled:
        assert made["spilled"] == 0, made["name"]
        assert made["registers"] * made["threads"] <= REGISTERS, made["name"]
        assert made["shared"] <= SHARED, made["name"]


PTX = """
    ld.param.b64 %rd1, [_k_param_0];
    ld.param.b64 %rd2, [_k_param_1];
    ld.param.b32 %r1, [_k_param_2];
    mad.wide.s32 %rd3, %r1, 2, %rd1;
    @%p1 ld.global.v4.b32 { %r2, %r3, %r4, %r5 }, [ %rd3 + 0 ];
    LATER
    griddepcontrol.wait;
    ld.global.b32 %r6, [ %rd2 + 0 ];
"""


@pytest.mark.parametrize(
    ("later", "early"),
    [
        ("", ["a", "n"]),
        ("ld.global.b32 %r6, [ %rd2 + 4 ];", ["a", "b", "n"]),
        ("@%p2 add.s64 %rd4, %rd2, 8;\n ld.global.b32 %r6, [ %rd4 + 4 ];", ["a", "b", "n"]),
        ("st.global.b32 [ %rd2 + 0 ], %r6;", ["a", "a write", "n"]),
    ],
)
def test_loads_are_traced_to_parameters(later: str, early: list[str]) -> None:
    assert read_early(PTX.replace("LATER", later), ["a", "b", "n"]) == early
