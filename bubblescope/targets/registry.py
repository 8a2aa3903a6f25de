"""The targets that there are, by name."""

from __future__ import annotations

import traceback
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any, cast

from bubblescope.errors import BubblescopeError
from bubblescope.targets.target import Target

_TARGETS = {
    "ling": ("bubblescope.targets.ling.target", "Ling"),
    "sglang": ("bubblescope.targets.sglang.target", "SGLang"),
}
"""Module and class of each; the module is imported only when its target is asked for."""


def names() -> tuple[str, ...]:
    """Names of the targets."""
    return tuple(_TARGETS)


def get(name: str, **options: Any) -> Target:
    """A target that is not started yet; `options` are those of its class.

    Raises:
        BubblescopeError: no such target, or what it needs is not installed.
    """
    found = _found(name)
    known = signature(found).parameters
    for option, value in options.items():
        if value is not None and option not in known:
            fitting = ", ".join(f"--{k.replace('_', '-')}" for k in known if k in options)
            raise BubblescopeError(
                f"target {name} has no --{option.replace('_', '-')}; it takes {fitting}"
            )
    return cast(Target, found(**{k: v for k, v in options.items() if v is not None}))


def checked_running(name: str) -> bool:
    """Whether it is of `bubblescope.targets.gated.CheckedRunning`; False where it cannot be had."""
    try:
        return bool(getattr(_found(name), "checked_running", False))
    except BubblescopeError:
        return False


def _found(name: str) -> Any:
    if name not in _TARGETS:
        raise BubblescopeError(f"no target {name!r}; there are: {', '.join(names())}")
    module, made = _TARGETS[name]
    try:
        if name == "ling":
            _import_torch(name)
        found = getattr(import_module(module), made)
        if name == "sglang" and find_spec("sglang") is None:
            raise ModuleNotFoundError(name="sglang")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("bubblescope"):
            raise
        raise BubblescopeError(
            f"target {name}: needs {error.name}, which is not installed; "
            f"pip install 'bubblescope[{name}]'"
        ) from None
    return found


def _import_torch(target: str) -> None:
    """Import it before all that needs it, so that what is wrong with it is told as its own."""
    try:
        import_module("torch")
    except ModuleNotFoundError:
        raise  # its name says what to install
    except Exception as error:
        said = traceback.format_exception_only(error)[-1].partition("\n")[0]
        raise BubblescopeError(
            f"target {target}: torch cannot be imported ({said}); see `bubblescope doctor`"
        ) from None
