"""What passes on the embedded loop call: they need neither torch nor triton to be imported."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from bubblescope.errors import BubblescopeError


def replaced(target: Any, *parts: str) -> AbstractContextManager[None]:
    """Put parts of the target `ling` on kernels until this exits.

    Args:
        target: the embedded loop, started or not.
        parts: of `optimizations.kernels.ling.PARTS`.

    Raises:
        NotOffered: the target's device runs no Triton kernels.
        BubblescopeError: triton is not installed.
    """
    try:
        from optimizations.kernels import ling
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("triton"):
            raise
        raise BubblescopeError(
            "kernels on the target ling need triton; pip install 'bubblescope[gpu]'"
        ) from None
    return ling.replaced(target, *parts)
