"""Acting on the import of a module: once it is there, not when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def after_import(name: str, act: Callable[[], None]) -> None:
    """Call `act` once the top-level module `name` has been imported, in the thread that did it.

    At once where it is there already; never where the import fails.
    """
    if name in sys.modules:
        act()
    else:
        sys.meta_path.insert(0, _Finder(name, act))


class _Finder:
    """Finds the one module by what else finds modules, and adds to what its loader does."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._act = name, act

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, with a loader that calls `act` when it is done."""
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)  # the program may try again with another path
            return None
        loader, act = spec.loader, self._act
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            act()

        # On this one loader, so that the module's spec and loader stay of the kinds they were.
        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
