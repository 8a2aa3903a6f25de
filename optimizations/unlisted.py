"""Passes that are not listed: a user's own, named by module and class."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from bubblescope.errors import BubblescopeError
from optimizations.passes import PassEntry


def load(name: str) -> PassEntry:
    """The pass that "package.module:Class" names, called by that name.

    Modules are looked for in the working directory too, as `python -m` does.

    Raises:
        BubblescopeError: no such module or class, or the class is no pass.
    """
    module, _, made = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), made)
    except (ImportError, AttributeError, ValueError) as error:
        raise BubblescopeError(
            f"pass {name}: {error}; name it MODULE:CLASS, as Python imports it from {here}"
        ) from None
    if not (isinstance(found, type) and issubclass(found, PassEntry)):
        raise BubblescopeError(f"pass {name}: is not a subclass of optimizations.passes.PassEntry")
    try:
        return replace(found(), name=name)  # type: ignore[call-arg]
    except TypeError as error:
        raise BubblescopeError(
            f"pass {name}: cannot be made without arguments ({error}); give its fields defaults"
        ) from None
