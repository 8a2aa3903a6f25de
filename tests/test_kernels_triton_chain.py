"""Whether what kernels read before their wait was final by then, in the order they are launched."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")
torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

import optimizations.kernels  # noqa: E402
from bubblescope.targets.ling.loop import Loop  # noqa: E402
from bubblescope.targets.ling.weights import Weights  # noqa: E402
from optimizations.kernels import lint  # noqa: E402
from optimizations.kernels.ling import PARTS, fit  # noqa: E402
from tests.test_kernels_triton_ling import CONFIG  # noqa: E402
from tests.triton_device import DEVICE  # noqa: E402

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="launches are seen in the interpreter")

FOLDER = Path(optimizations.kernels.__file__).parent
READS = {
    name: reads
    for path in FOLDER.glob("*.py")
    for name, reads in lint.declared(ast.parse(path.read_text())).items()
}
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Launch:
    """kernel: its name. changed: addresses that it changed. early: those that it may read early.

    A constant is final for good, so it is None; what is settled, from the launch before on.
    """

    kernel: str
    changed: list[Range]
    constant: list[Range]
    settled: list[Range]


def _range(tensor: Tensor) -> Range:
    first = tensor.data_ptr()
    span = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return first, first + span * tensor.element_size()


@contextmanager
def watched(buffers: list[Tensor]) -> Iterator[list[Launch]]:
    """Every launch until this exits. buffers: that a kernel may change without being given them."""
    found: list[Launch] = []
    kind = triton.runtime.interpreter.InterpretedFunction
    run = kind.run

    def seen(kernel: Any, *args: Any, **how: Any) -> None:
        given = dict(zip(kernel.arg_names, args, strict=False)) | how
        tensors = {n: t for n, t in given.items() if isinstance(t, Tensor)}
        every = [*tensors.values(), *buffers]
        before = [t.clone() for t in every]
        run(kernel, *args, **how)
        changed = [
            _range(t)
            for t, old in zip(every, before, strict=True)
            if not torch.equal(t.view(torch.uint8), old.view(torch.uint8))
        ]
        reads = READS.get(kernel.__name__, lint.Reads())
        early = ([_range(tensors[n]) for n in names] for names in (reads.constant, reads.settled))
        found.append(Launch(kernel.__name__, changed, *early))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "run", seen)
        yield found


def meet(one: list[Range], other: list[Range]) -> bool:
    return any(a < d and c < b for a, b in one for c, d in other)


def broken(launches: list[Launch]) -> list[str]:
    """Promises of `BEFORE_WAIT` that this order of launches does not keep."""
    found = []
    for n, launch in enumerate(launches):
        if any(meet(launch.constant, other.changed) for other in launches):
            found.append(f"{launch.kernel}: a constant is written")
        if n and meet(launch.settled, launches[n - 1].changed):
            found.append(f"{launch.kernel}: {launches[n - 1].kernel} writes what it reads early")
    return found


def test_nothing_is_read_before_it_is_final() -> None:
    """Two steps of the loop, all parts on kernels; launches of torch between them only help."""
    loop = Loop(CONFIG, Weights(0, DEVICE, torch.float32), None)
    loop.table.copy_(torch.arange(CONFIG.context))
    loop.model, loop.mtp = fit(loop, PARTS, {})
    states = [t for a in loop.model.kda() for t in (a.state, a.history)]
    with torch.no_grad(), watched(states) as launches:
        for _ in range(2):
            for stage in (loop.plan_and_draft, loop.verify, loop.commit, loop.extend):
                stage()
    names = {launch.kernel for launch in launches}
    assert names >= READS.keys()
    assert {"_commit", "_attend", "_into"} <= names
    commits = [launch for launch in launches if launch.kernel == "_commit"]
    assert [len(launch.changed) for launch in commits] == [len(states)] * 2
    assert broken(launches) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ([(0, 8)], []),
        ([(100, 108)], ["b: a constant is written"]),
        ([(205, 206)], ["b: a writes what it reads early"]),
        ([(208, 216)], []),
    ],
)
def test_an_order_that_breaks_a_promise_is_found(changed: list[Range], said: list[str]) -> None:
    b = Launch("b", [], [(96, 101)], [(200, 208)])
    assert broken([Launch("a", changed, [], []), b]) == said
    between = [Launch("a", changed, [], []), Launch("c", [], [], []), b]
    assert broken(between) == [s for s in said if "constant" in s]
