from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable
from enum import Enum
from typing import Any


class HookType(Enum):
    AROUND = "around"


class HookRegistry:
    hooks: list[tuple[str, Callable[..., Any]]] = []

    @classmethod
    def register(cls, target: str, hook: Callable[..., Any], hook_type: HookType) -> None:
        assert hook_type is HookType.AROUND
        cls.hooks.append((target, hook))

    @classmethod
    def apply_hooks(cls) -> None:
        for target, hook in cls.hooks:
            owner_path, _, name = target.rpartition(".")
            owner = pkgutil.resolve_name(owner_path)
            original = getattr(owner, name)

            def wrapped(
                *args: Any, _hook: Any = hook, _original: Any = original, **more: Any
            ) -> Any:
                return _hook(_original, *args, **more)

            setattr(owner, name, functools.wraps(original)(wrapped))
