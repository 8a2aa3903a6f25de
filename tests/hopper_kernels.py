"""A child process: compiles every kernel in a rank's shapes for Hopper, and prints what came out.

TRITON_INTERPRET must not be set, since it is read when triton is imported.
"""

from __future__ import annotations

import json
import re
import sys

import torch
from torch import Tensor

from optimizations.kernels import (
    argmax,
    attend,
    experts,
    join,
    mla,
    project,
    router,
    staged_kda,
    verify_attention,
)
from tests.hopper import Compiled, launches

BF16, FP32, INT = torch.bfloat16, torch.float32, torch.int64


def _t(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def run(tokens: int) -> None:
    """Every function once, in the shapes of one of four tensor-parallel ranks."""
    hidden, t = 2560, tokens
    kda, latent = _t(t, 5136), _t(t, 2128)
    project.project(_t(t, hidden), _t(5128, hidden), norm=_t(hidden), pdl=True)
    project.project(
        _t(t, 1024, dtype=FP32), _t(hidden, 1024), norm=_t(128), gate=kda[:, 4096:5120],
        residual=_t(t, hidden), dtype=BF16, pdl=True,
    )  # fmt: skip
    project.project(_t(t, 3072), _t(hidden, 1536), swiglu_limit=4.0, pdl=True)
    project.project(_t(t, hidden), _t(39_296, hidden), dtype=FP32, pdl=True)
    for dtype in (FP32, BF16):
        router.gate(_t(t, hidden), _t(512, hidden, dtype=dtype), norm=_t(hidden), pdl=True)
    router.choose(
        _t(t, 512, dtype=FP32), _t(512, dtype=FP32),
        groups=8, top_groups=4, top=8, scale=2.5, pdl=True,
    )  # fmt: skip
    experts.experts(
        _t(t, hidden), _t(512, 384, hidden), _t(512, hidden, 192), _t(384, hidden),
        _t(hidden, 192), _t(t, 8, dtype=INT), _t(t, 8, dtype=FP32), pdl=True,
    )  # fmt: skip
    state, history = _t(8, 128, 128, dtype=FP32), _t(3, 3072)
    staged_kda.staged_kda(
        kda[:, :3072], kda[:, 3072:4096], kda[:, 5120:5128], _t(3072, 4, dtype=FP32),
        _t(8, dtype=FP32), _t(8, 128, dtype=FP32), state, history,
        staged_state=_t(t, *state.shape, dtype=FP32), staged_history=_t(t, *history.shape),
        pdl=True,
    )  # fmt: skip
    at, table = _t(t, dtype=INT), _t(16_384, dtype=INT)
    angles, cache = _t(16_384, 32, dtype=FP32), _t(16_384, 576)
    queries = mla.prepare(
        latent[:, :1536], latent[:, 1536:2112], _t(8, 128, 512), _t(512), angles, angles,
        at, at, cache, pdl=True,
    )  # fmt: skip
    seen = attend.attend(queries, cache, at, table, rank=512, scale=0.07, pdl=True)
    argmax.argmax(_t(t, 39_296, dtype=FP32), pdl=True)
    join.join(
        at, _t(39_296, hidden), _t(t, hidden), _t(hidden), _t(hidden), _t(hidden, 2 * hidden),
        pdl=True,
    )  # fmt: skip
    mla.values(seen, _t(8, 128, 512), latent[:, 2112:2120], pdl=True)
    staged = _t(t, *state.shape, dtype=FP32), _t(t, *history.shape)
    commit = staged_kda.Commit([(state, staged[0], history, staged[1])] * 35)
    commit(_t(1, dtype=INT), pdl=True)
    if tokens <= verify_attention.TOKENS:
        verify_attention.verify(
            _t(t, 8, 576), _t(t, 1, 576), _t(16_384, 1, 576), _t(2, dtype=torch.int32),
            _t(16_384, dtype=torch.int32), rank=512, scale=0.07, pdl=True,
        )  # fmt: skip


def run_fp32() -> None:
    """What has a dot, with fp32 weights, small."""
    at, table = _t(6, dtype=INT), _t(64, dtype=INT)
    angles, cache = _t(64, 8, dtype=FP32), _t(64, 48, dtype=FP32)
    x, norm, weight = (_t(*s, dtype=FP32) for s in ((6, 64), (64,), (24, 64)))
    project.project(x, weight, norm=norm)
    join.join(at, _t(32, 64, dtype=FP32), x, norm, norm, _t(64, 128, dtype=FP32))
    queries = mla.prepare(
        _t(6, 96, dtype=FP32), _t(6, 48, dtype=FP32), _t(2, 32, 32, dtype=FP32),
        _t(32, dtype=FP32), angles, angles, at, at, cache,
    )  # fmt: skip
    seen = attend.attend(queries, cache, at, table, rank=32, scale=0.1)
    mla.values(seen, _t(2, 32, 32, dtype=FP32), _t(6, 2, dtype=FP32))
    verify_attention.verify(
        _t(6, 2, 80, dtype=FP32), _t(6, 1, 80, dtype=FP32), _t(64, 1, 80, dtype=FP32),
        _t(2, dtype=torch.int32), _t(64, dtype=torch.int32), rank=64, scale=0.1,
    )  # fmt: skip


def before_wait(ptx: str) -> list[str]:
    """Lines that can run before a wait does, in order; a kernel may have a wait in each branch."""
    lines = ptx.splitlines()
    found = [(n, re.match(r"\s*(\$\w+):", line)) for n, line in enumerate(lines)]
    labels = {label[1]: n for n, label in found if label is not None}
    reached: set[int] = set()
    todo = [0]
    while todo:
        at = todo.pop()
        while at < len(lines) and at not in reached and "griddepcontrol.wait" not in lines[at]:
            reached.add(at)
            branch = re.search(r"\bbra(?:\.uni)?\s+(\S+);", lines[at])
            if branch is not None:
                todo.append(labels[branch[1]])
            ends = branch is not None or re.search(r"\bret;", lines[at])
            if ends and "@" not in lines[at]:
                break
            at += 1
    return [lines[n] for n in sorted(reached)]


def read_early(ptx: str, parameters: list[str]) -> list[str]:
    """Parameters from whose addresses something is loaded before the wait."""
    roots: dict[str, set[str]] = {}
    found: set[str] = set()
    for line in before_wait(ptx):
        registers = re.findall(r"%[a-z]+\d+", re.sub(r"@!?%p\d+", "", line))
        if "ld.param" in line:
            index = re.search(r"_param_(\d+)", line)
            assert index is not None
            if int(index[1]) < len(parameters):
                roots[registers[0]] = {parameters[int(index[1])]}
        elif "ld.global" in line:
            address = re.search(r"\[\s*(%rd\d+)", line)
            assert address is not None, line
            found |= roots.get(address[1], set())
        elif "st.global" in line or "atom" in line:
            found.add("a write")
        elif registers:
            roots[registers[0]] = set().union(*(roots.get(r, set()) for r in registers[1:]))
    return sorted(found)


def described(made: Compiled) -> dict[str, object]:
    """What the tests check of a launch."""
    wait = made.ptx.find("griddepcontrol.wait")
    return {
        "name": made.name,
        "registers": made.registers,
        "spilled": made.spilled,
        "shared": made.shared,
        "threads": 32 * made.warps,
        "early": read_early(made.ptx, list(made.parameters)),
        "ordered": 0 < wait < made.ptx.find("griddepcontrol.launch_dependents"),
        "tf32": "tf32" in made.ptx,
    }


if __name__ == "__main__":
    wanted = sys.argv[1]
    said = [
        described(c) for c in launches(run_fp32 if wanted == "fp32" else lambda: run(int(wanted)))
    ]
    print(json.dumps(said))
