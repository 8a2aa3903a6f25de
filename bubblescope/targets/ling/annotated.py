"""Each operation of a stage in an annotation of its own, for tools that measure annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from bubblescope.targets.ling.device import scoped
from bubblescope.targets.ling.scheduler import STAGES

_IN_STAGES = (*STAGES, "plan and draft")


class _Annotate(TorchDispatchMode):
    """Names are those of the stage, the layer's part and the operation, counted where they repeat.

    A stage does the same operations at each step, so names mean the same in all of them. What is
    done outside of stages, copies from the host among it, is in no annotation.
    """

    def __init__(self, annotate: Callable[[str], AbstractContextManager[Any]]) -> None:
        super().__init__()
        self._annotate = annotate
        self._seen: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = scoped(func._schema.name.removeprefix("aten::"))
        if not name.startswith(_IN_STAGES):
            return func(*args, **(kwargs or {}))
        self._seen[name] += 1
        with self._annotate(f"{name} #{self._seen[name]}"):
            return func(*args, **(kwargs or {}))


@contextmanager
def annotated(annotate: Callable[[str], AbstractContextManager[Any]]) -> Iterator[None]:
    """Every operation of one step, run inside this without graphs, in `annotate(name)`."""
    with _Annotate(annotate):
        yield
