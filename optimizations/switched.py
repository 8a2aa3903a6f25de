"""How a pass reaches the switch of that name on its target; imports neither torch nor triton."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from bubblescope.errors import BubblescopeError

NEEDS = (
    "on sglang: SGLang 0.5.23 or later on Hopper or Blackwell",
    "on ling: a CUDA device, and triton",
)
"""What the passes need that are kernels on both targets."""


def on(target: Any, name: str) -> AbstractContextManager[None]:
    """Turn a switch on until this exits.

    SGLang's switches are in the target. On the embedded loop they are parts of the model, which
    kernels of `optimizations.kernels` replace.

    Args:
        target: `sglang` or `ling`, started or not.
        name: as `targets.sglang.switches.SWITCHES` and `kernels.ling.PARTS` have it.

    Raises:
        NotOffered: the target's device runs no Triton kernels.
        BubblescopeError: triton is not installed.
    """
    if target.name != "ling":
        switch: AbstractContextManager[None] = target.switches[name].on()
        return switch
    target.parts.check()
    try:
        from optimizations.kernels import ling
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("triton"):
            raise
        raise BubblescopeError(
            "kernels on the target ling need triton; pip install 'bubblescope[gpu]'"
        ) from None
    return ling.replaced(target, name)
