"""Compiles the launches of a function for Hopper, on any machine: arguments are meta tensors."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TYPES = {
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.int64: "*i64",
    torch.int32: "*i32",
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """One launch.

    grid: programs. parameters: of the PTX, in order. registers: a thread. spilled: bytes
    of stack. shared: bytes.
    """

    name: str
    grid: tuple[int, ...]
    parameters: tuple[str, ...]
    ptx: str
    registers: int
    spilled: int
    shared: int
    warps: int


def launches(function: Callable[[], object]) -> list[Compiled]:
    """Run it with every launch compiled and none made, with dependent launch on."""
    found: list[Compiled] = []

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        found.append(_compile(kernel, args, kwargs, grid))

    with (
        mock.patch.object(triton.runtime.jit.JITFunction, "run", run),
        mock.patch("optimizations.kernels.launching.dependent_launch", return_value=True),
    ):
        function()
    return found


def _compile(kernel: Any, args: Any, kwargs: dict[str, Any], grid: Any) -> Compiled:
    names = [p.name for p in kernel.params]
    options = {k: v for k, v in kwargs.items() if k not in names}
    given = dict(zip(names, args, strict=False)) | {k: v for k, v in kwargs.items() if k in names}
    signature, constants, attributes = {}, {}, {}
    for index, p in enumerate(kernel.params):
        value = given[p.name]
        if p.is_constexpr or value is None or (type(value) is int and value == 1):
            signature[p.name], constants[p.name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[p.name] = TYPES[value.dtype]
            # As the launcher does by address; a view of rows begins on 16 bytes or it does not.
            if value.storage_offset() * value.element_size() % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[p.name] = "fp32"
        else:
            signature[p.name] = "i32" if abs(value) < 2**31 else "i64"
            if value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    registers, stack = _resources(made.asm["cubin"])
    return Compiled(
        kernel.fn.__name__,
        tuple(grid),
        tuple(n for n, kind in signature.items() if kind != "constexpr"),
        made.asm["ptx"],
        registers,
        stack,
        made.metadata.shared,
        made.metadata.num_warps,
    )


def _resources(cubin: bytes) -> tuple[int, int]:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    used = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert used is not None, said
    return int(used[1]), int(used[2])
