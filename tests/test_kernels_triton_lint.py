"""The lint of kernels that begin early, on good and bad ones, and on ours."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

import optimizations.kernels
from optimizations.kernels.lint import faults

FOLDER = Path(optimizations.kernels.__file__).parent
OURS = sorted(p for p in FOLDER.glob("*.py") if "@triton.jit" in p.read_text())


def said(body: str, declared: str = 'constant=("weight",), settled=("state",)') -> list[str]:
    """Faults of a kernel with parameters x, weight, state, out, n and PDL."""
    head = f'BEFORE_WAIT = {{"kernel": Reads({declared})}}\n\n@triton.jit\n'
    head += "def kernel(x, weight, state, out, n, PDL: tl.constexpr):\n"
    return [f.what for f in faults(head + indent(dedent(body), "    ") + HELPERS)]


HELPERS = """
@triton.jit
def mine(at):
    return tl.load(at)

@triton.jit()
def through(at):
    return mine(at)

@triton.jit
def put(at):
    tl.store(at, 0)

@triton.jit
def sum_of(a, b):
    return a + b
"""


GOOD = """
    at = tl.program_id(0) * 16 + tl.arange(0, 16)
    w = tl.load(weight + at)
    row = state + at[:, None]
    s = tl.load(row)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    for i in range(n):
        w += tl.load(x + i)
    tl.store(out + at, w * s)
"""
LOOP = "waits inside a loop, whose loads may be moved before it"


def test_a_good_one_has_no_faults() -> None:
    assert said(GOOD) == []


@pytest.mark.parametrize(
    ("change", "to", "fault"),
    [
        ("tl.load(weight + at)", "tl.load(x + at)", "reads x before its wait"),
        ("tl.load(weight + at)", "tl.load(weight + tl.load(x))", "reads x before its wait"),
        ("row = state + at[:, None]", "row = (x + at)[:, None]", "reads x before its wait"),
        ("s = tl.load(row)", "s = tl.atomic_add(weight, 1)", "writes weight before its wait"),
        ("s = tl.load(row)", "tl.store(out, w)", "writes out before its wait"),
        ("    gdc_wait()\n", "    pass\n", "can end without a wait"),
        (
            "gdc_wait()\n        gdc_launch_dependents()",
            "gdc_launch_dependents()\n        gdc_wait()",
            "lets the next kernel begin before its own wait",
        ),
        ("if PDL:", "for _ in range(1):", LOOP),
        ("if PDL:", "if n > 0:", "can end without a wait"),
        ("if PDL:", "if n == 0:\n        return\n    if PDL:", "can end without a wait"),
        ("if PDL:", "while n > 0:\n        tl.load(x)\n    if PDL:", "reads x before its wait"),
        ("if PDL:", "if PDL and n > 0:", "can end without a wait"),
        # An address by other ways than a plain sum.
        ("row = state", "row = q = x", "reads x before its wait"),
        ("row = state", "row = state\n    row = q = x", "reads x before its wait"),
        ("row = state", "row = (q := x)", "reads x before its wait"),
        ("tl.load(row)", "tl.load(row if n else x)", "reads n, x before its wait"),
        ("tl.load(row)", "tl.load(tl.where(at > 0, row, x))", "reads x before its wait"),
        ("tl.load(row)", "tl.make_tensor_descriptor(x, [n], [1], [16]).load([0])", "reads n, x"),
        ("if PDL:", "for p in (x,):\n        tl.load(p)\n    if PDL:", "reads x before its wait"),
        # Reads and writes that other functions make.
        ("tl.load(row)", "mine(x + at)", "reads x before its wait"),
        ("tl.load(row)", "through(x + at)", "reads x before its wait"),
        ("tl.load(row)", "put(weight + at)", "writes weight before its wait"),
        ("tl.load(row)", "theirs(x + at)", "gives x to theirs before its wait"),
        ("tl.load(row)", "other.theirs(x)", "gives x to other.theirs before its wait"),
        ("tl.load(row)", "tl.inline_asm_elementwise('', '', [row])", "writes state before its"),
        ("if PDL:", "gdc.gdc_launch_dependents()\n    if PDL:", "lets the next kernel begin"),
        ("if PDL:", "with n:\n        tl.load(x)\n    if PDL:", "that is not understood"),
        # What is final may not be written, and what is read neither: see the module.
        ("tl.store(out + at, w * s)", "tl.store(row, w * s)", "writes state, which is declared"),
        ("tl.store(out + at, w * s)", "tl.store(x + at, w * s)", "reads and writes x: a later"),
        ("tl.store(out + at, w * s)", "tl.atomic_or(x + at, 1)", "reads and writes x: a later"),
        ("tl.store(out + at, w * s)", "put(x + at)", "reads and writes x: a later program"),
    ],
)  # fmt: skip
def test_a_bad_one_has_one(change: str, to: str, fault: str) -> None:
    assert GOOD.count(change) == 1
    assert any(fault in what for what in said(GOOD.replace(change, to)))


def test_what_is_not_declared_may_not_be_read() -> None:
    assert said(GOOD, 'constant=("weight",)') == ["reads state before its wait"]


def test_both_branches_may_wait() -> None:
    both = """
        if n > 0:
            p = weight + n
            w = tl.load(p)
            if PDL:
                gdc_wait()
        else:
            p = x + n
            if PDL:
                gdc_wait()
            w = tl.load(p)
        tl.store(out, w)
    """
    assert said(both) == []


def test_an_address_that_is_either_counts_as_both() -> None:
    either = """
        p = weight
        if n > 0:
            p = x
        w = tl.load(p + n)
        if PDL:
            gdc_wait()
    """
    assert said(either) == ["reads x before its wait"]


def test_an_address_that_was_read_cannot_be_judged() -> None:
    table = """
        p = tl.load(weight).to(tl.pointer_type(tl.float32))
        w = tl.load(p)
        if PDL:
            gdc_wait()
    """
    assert said(table) == ["reads an address that was read before its wait"]


def test_a_kernel_is_one_however_it_is_decorated() -> None:
    for decorator in ("triton.jit", "triton.jit(do_not_specialize=['n'])", "jit"):
        source = f"@triton.autotune(configs=[])\n@{decorator}\n"
        source += "def kernel(x, n, PDL: tl.constexpr):\n    tl.load(x)\n"
        assert [f.what for f in faults(source)] == [
            "can end without a wait",
            "reads x before its wait",
        ]


def test_a_function_without_the_parameter_may_not_wait() -> None:
    """Its caller would not be seen to."""
    source = "@triton.jit\ndef helper(x):\n    gdc_wait()\n"
    assert [f.what for f in faults(source)] == [
        "waits or lets the next begin, but has no parameter PDL"
    ]


def test_the_wait_has_its_own_name() -> None:
    source = "from triton.language.extra.cuda import gdc_launch_dependents as go\n"
    assert [f.what for f in faults(source)] == ["is imported as go"]


def test_a_declared_parameter_that_there_is_not_is_a_fault() -> None:
    assert said(GOOD, 'constant=("weight", "wieght"), settled=("state",)') == [
        "has no parameter wieght, which is declared"
    ]


def test_arithmetic_of_its_own_functions_is_allowed() -> None:
    assert said(GOOD.replace("tl.load(row)", "sum_of(tl.load(row), x)")) == []


def test_functions_that_are_not_launched_are_left_alone() -> None:
    assert faults("@triton.jit\ndef helper(x):\n    return tl.load(x)\n") == []


def test_a_declaration_of_nothing_is_a_fault() -> None:
    assert [f.what for f in faults('BEFORE_WAIT = {"gone": Reads()}')] == [
        "is declared, but there is no such kernel"
    ]


@pytest.mark.parametrize("path", OURS, ids=lambda p: p.name)
def test_ours_have_none(path: Path) -> None:
    source = path.read_text()
    assert faults(source) == []
    assert source.count("gdc_wait()") >= 1


WAIT, TRIGGER = "gdc_wait()\n", "gdc_launch_dependents()\n"
WAITS = [(path, n) for path in OURS for n in range(path.read_text().count(WAIT))]


@pytest.mark.parametrize(("path", "number"), WAITS, ids=lambda p: getattr(p, "name", str(p)))
def test_it_finds_every_wait_of_ours_that_is_taken_out_or_comes_late(
    path: Path, number: int
) -> None:
    before, found, after = _split(path.read_text(), WAIT, number)
    assert faults(before + "pass\n" + after) != []
    indented, triggered, rest = after.partition(TRIGGER)
    assert indented.strip() == ""
    assert faults(before + triggered + indented + found + rest) != []


def _split(text: str, part: str, number: int) -> tuple[str, str, str]:
    """What stands before the part of this number, it, and what stands behind it."""
    at = -1
    for _ in range(number + 1):
        at = text.index(part, at + 1)
    return text[:at], part, text[at + len(part) :]
