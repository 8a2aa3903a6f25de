"""A captured graph on the CPU: torch's operations written down once, run again without Python.

The operations become a TorchScript function that works on the same memory at each run, as a CUDA
graph does. It runs without the interpreter lock, and takes the time before and after each one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bubblescope.targets.ling.device import scoped

_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1}
"""As TorchScript writes them."""


class Program:
    """The operations of `body`, which runs once for it.

    names: of the operations, in order. Tensors that `body` made keep their memory, and every
    run writes it again.
    """

    def __init__(self, body: Callable[[], None]) -> None:
        recorder = _Recorder()
        with torch.no_grad(), recorder:
            body()
        self.names: tuple[str, ...] = tuple(recorder.names)
        self._tensors = torch._C.ScriptList(recorder.tensors)
        self._function = torch._C._create_function_from_graph("graph", recorder.finish())

    def run(self) -> Tensor:
        """Run every operation. Returns begin and end of each, on `time.monotonic_ns()`'s clock.

        int64, shape (2 * operations,). Within `unoptimised` only: TorchScript's optimiser would
        merge operations and move them.
        """
        times: Tensor = self._function(self._tensors)
        return times


def unoptimised() -> AbstractContextManager[None]:
    """TorchScript runs what was written, on this thread, until this exits."""
    made: AbstractContextManager[None] = torch.jit.optimized_execution(False)
    return made


class _Recorder(TorchDispatchMode):
    """Writes each operation that is not a view into a TorchScript graph."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.tensors: list[Tensor] = []
        self._values: dict[int, Any] = {}
        self._graph = torch._C.Graph()
        tensors = self._graph.addInput("tensors")
        tensors.setType(torch._C.ListType(torch._C.TensorType.get()))
        self._unpack = self._graph.create("prim::ListUnpack", [tensors], 0)
        self._graph.insertNode(self._unpack)
        self._times: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [result] if isinstance(result, Tensor) else result
        if isinstance(made, int | float | bool):
            raise RuntimeError(f"{func}: reads a value back while a graph is captured")
        given = _bind(func._schema, args, kwargs or {})
        if func._schema.is_mutable:
            self._write(func, given, None)
        elif not _is_view(made, given):
            self._write(func, given, list(made))
        return result

    def finish(self) -> Any:
        """The graph; its result is the tensor of times."""
        times = self._node("prim::ListConstruct", self._times)
        times.setType(torch._C.ListType(torch._C.IntType.get()))
        constants = [self._graph.insertConstant(c) for c in (torch.int64, None, False)]
        self._graph.registerOutput(self._node("aten::tensor", [times, *constants]))
        return self._graph

    def _write(self, func: Any, given: dict[str, Any], made: list[Tensor] | None) -> None:
        self.names.append(scoped(func._schema.name.removeprefix("aten::").strip("_")))
        out = None if made is None else _out_variant(func, len(made))
        if made is not None and out is not None:
            names = [a.name for a in out._schema.arguments]
            given = given | dict(zip(names[-len(made) :], made, strict=True))
            values = [
                self._value(given[n], a.type)
                for n, a in zip(names, out._schema.arguments, strict=True)
            ]
        else:
            values = [self._value(given[a.name], a.type) for a in func._schema.arguments]
        copies = made if made is not None and out is None else []
        targets = [(self._value(t, None), self._graph.insertConstant(False)) for t in copies]
        self._take_time()
        node = self._graph.create(func._schema.name, values, len(func._schema.returns))
        self._graph.insertNode(node)
        for result, (target, non_blocking) in zip(node.outputs(), targets, strict=False):
            self._node("aten::copy_", [target, result, non_blocking])
        self._take_time()

    def _take_time(self) -> None:
        now = self._node("prim::TimePoint", [])
        now.setType(torch._C.IntType.get())
        self._times.append(now)

    def _node(self, kind: str, inputs: list[Any]) -> Any:
        node = self._graph.create(kind, inputs, 1)
        self._graph.insertNode(node)
        return node.output()

    def _value(self, given: Any, kind: Any) -> Any:
        """A constant, a tensor, or a list of tensors as a value of the graph."""
        if isinstance(given, Tensor):
            if id(given) not in self._values:
                self.tensors.append(given)  # kept, so that the id stays its own
                self._values[id(given)] = self._unpack.addOutput()
            return self._values[id(given)]
        if isinstance(given, list | tuple) and any(isinstance(t, Tensor) for t in given):
            listed = self._node("prim::ListConstruct", [self._value(t, None) for t in given])
            listed.setType(kind)
            return listed
        if isinstance(given, torch.memory_format):
            given = _FORMATS[given]
        if isinstance(given, bool) and str(kind) in ("Scalar", "number"):
            given = int(given)
        return self._graph.insertConstant(list(given) if isinstance(given, tuple) else given)


def _bind(schema: Any, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Every argument by its name, defaults filled in."""
    given = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    positional = [a.name for a in schema.arguments if not a.kwarg_only]
    return given | dict(zip(positional, args, strict=False)) | kwargs


def _is_view(made: Any, given: dict[str, Any]) -> bool:
    """Whether the results are memory of the arguments."""
    memory = {
        t.untyped_storage().data_ptr()
        for value in given.values()
        for t in (value if isinstance(value, list | tuple) else [value])
        if isinstance(t, Tensor)
    }
    return all(t.untyped_storage().data_ptr() in memory for t in made)


def _out_variant(func: Any, results: int) -> Any:
    """The overload that writes into given memory, None where there is none like `func`."""
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments]
    for name in func.overloadpacket.overloads():
        other = getattr(func.overloadpacket, name)
        arguments = other._schema.arguments
        same = [(a.name, str(a.type)) for a in arguments[: len(wanted)]] == wanted
        rest = arguments[len(wanted) :]
        if same and len(rest) == results and all(a.is_out for a in rest):
            return other
    return None


def clock_offset_ns() -> int:
    """What to add to `time.monotonic_ns()` to get `time.time_ns()`: the middle of both readings."""
    before = time.monotonic_ns()
    now = time.time_ns()
    return now - (before + time.monotonic_ns()) // 2
