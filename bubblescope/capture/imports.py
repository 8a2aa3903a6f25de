"""Acting on the import of a module: once it is there, not when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
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
    """Finds the one module by what else finds modules, and adds to what its loader does.

    It stays until the module is there: a program may only ask where a module is, import it later,
    or try again after an import that failed.
    """

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._act = name, act

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, with a loader that calls `act` when it is done."""
        if name != self._name:
            return None
        spec = self._of_others(name, path, target)
        if spec is not None and spec.loader is not None:
            self._add_to(spec.loader)
        return spec

    def _of_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in tuple(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _add_to(self, loader: Loader) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._act()

        # On this one loader, so that the module's spec and loader stay of the kinds they were.
        loader.exec_module = _unseen(exec_module)  # type: ignore[method-assign, assignment]


def _unseen(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    """`execute` as the import system's own: Python leaves it out where an import's error is shown.

    Known by this file and name; where a later Python goes by others, the frame is shown.
    """
    code = execute.__code__
    execute.__code__ = code.replace(
        co_filename="<frozen importlib._bootstrap_external>", co_name="_call_with_frames_removed"
    )
    return execute
