"""C++ names as people write them."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def demangle(name: str) -> str:
    """The name that a mangled one stands for, itself where it is none."""
    if not name.startswith("_Z"):
        return name
    function, free = _library()
    if function is None:
        return name
    status = ctypes.c_int()
    found = function(name.encode(), None, None, ctypes.byref(status))
    if not found or status.value:
        return name
    try:
        return ctypes.string_at(found).decode(errors="replace")
    finally:
        free(found)


@cache
def _library() -> tuple[Any, Any]:
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return None, None
    function.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]
    return function, free
