"""What Triton's compiler makes of the kernels for Hopper, which needs no GPU."""

from __future__ import annotations

import ast
import json
import os
import re
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
SPILLED = 32
"""Bytes of a thread's stack: a few registers too many, which depend on the compiler's release."""
FOLDER = Path(optimizations.kernels.__file__).parent
KERNEL = r"@triton.jit\ndef (\w+)\([^)]*\bPDL: tl.constexpr"


def compile_child(what: str) -> list[dict[str, Any]]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.hopper_kernels", what],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    made: list[dict[str, Any]] = json.loads(said)
    return made


@pytest.fixture(scope="module", params=[1, 6, 9])
def compiled(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Every launch of a rank with so many tokens."""
    return compile_child(str(request.param))


def _declared() -> dict[str, Reads]:
    found: dict[str, Reads] = {}
    for path in FOLDER.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BEFORE_WAIT":
                found |= eval(ast.unparse(node.value), {"Reads": Reads})
    return found


def test_every_kernel_waits_and_then_lets_the_next_begin(compiled: list[dict[str, Any]]) -> None:
    names = {made["name"] for made in compiled}
    kernels = {p for path in FOLDER.glob("*.py") for p in re.findall(KERNEL, path.read_text())}
    assert names | {"_verify"} == kernels  # which takes 8 tokens at most
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


def test_fp32_stays_fp32() -> None:
    """A dot of fp32 operands would cut them to TF32 where it does not say otherwise."""
    made = compile_child("fp32")
    dots = {"_project", "_draft_input", "_prepare", "_attend", "_values", "_verify"}
    assert {m["name"] for m in made} >= dots
    assert not [m["name"] for m in made if m["tf32"]]


def test_they_fit_and_nothing_spills(compiled: list[dict[str, Any]]) -> None:
    for made in compiled:
        assert made["spilled"] <= SPILLED, made["name"]
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


BRANCHES = """
    ld.param.b64 %rd1, [_k_param_0];
    ld.param.b64 %rd2, [_k_param_1];
    @%p1 bra $L__BB0_2;
    griddepcontrol.wait;
    ld.global.b32 %r6, [ %rd1 + 0 ];
    bra.uni $L__BB0_3;
$L__BB0_2:                  // %.else
    OTHER
    griddepcontrol.wait;
$L__BB0_3:
    ld.global.b32 %r6, [ %rd1 + 0 ];
    ret;
"""


def test_a_branch_with_a_wait_of_its_own_is_read_too() -> None:
    other = "ld.global.b32 %r6, [ %rd2 + 0 ];"
    assert read_early(BRANCHES.replace("OTHER", ""), ["a", "b"]) == []
    assert read_early(BRANCHES.replace("OTHER", other), ["a", "b"]) == ["b"]
    unwaited = BRANCHES.replace("OTHER\n    griddepcontrol.wait;", "")
    assert read_early(unwaited, ["a", "b"]) == ["a"]


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
