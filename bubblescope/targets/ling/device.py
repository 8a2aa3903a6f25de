"""What the loop needs of a device: graphs, copies, events and streams, as CUDA has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

_scopes: list[str] = []


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Names what is captured inside: its operations are called "name: op"."""
    _scopes.append(name)
    try:
        yield
    finally:
        _scopes.pop()


def scoped(op: str) -> str:
    """The name of an operation captured now: "kda.delta rule: mul"."""
    return f"{'.'.join(_scopes)}: {op}" if _scopes else op


class Device(Protocol):
    """Runs what is queued in order, while the host goes on: one stream.

    Graphs and events are the device's own objects, to be handed back to it unchanged.
    """

    @property
    def name(self) -> str:
        """As reports name it."""
        ...

    @property
    def torch_device(self) -> str:
        """Where tensors of this device live, as torch writes it."""
        ...

    def capture(self, name: str, body: Callable[[], None]) -> Any:
        """A graph of the operations of `body`, which runs for it, so that state changes."""
        ...

    def replay(self, graph: Any) -> None:
        """Queue all operations of a graph by one host call."""
        ...

    def copy(self, target: Tensor, source: Tensor, kind: str) -> None:
        """Queue a copy; kind "HtoD" or "DtoH". The host side must not change before it ran."""
        ...

    def record(self) -> Any:
        """An event that happens when what is queued so far is done."""
        ...

    def synchronize_event(self, event: Any) -> None:
        """Return when the event has happened."""
        ...

    def synchronize(self) -> None:
        """Return when all that is queued is done."""
        ...

    def annotate(self, name: str) -> AbstractContextManager[None]:
        """A named range on the host, as NVTX gives."""
        ...

    def close(self) -> None:
        """Finish what is queued and give everything back."""
        ...
