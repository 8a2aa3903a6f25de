"""What torch says of CUDA in this process, asked so that the process stays as it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def at_first_use(act: Callable[[], None]) -> None:
    """Call `act` when this process first uses CUDA through torch, if torch is imported.

    Never in a process that cannot use it. No lock of torch's is taken: after a fork it may be held
    for good by a thread that is gone.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    queue = getattr(cuda, "_queued_calls", None)
    if cuda is None or queue is None:
        return
    if cuda.is_initialized():
        act()
    else:
        queue.append((act, []))  # the list of where it was asked for from is for torch's errors


def available() -> bool:
    """Whether torch finds a device; by the driver's library, so that forks can still use it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None:
        return False
    before = os.environ.get(_BY_NVML)
    os.environ[_BY_NVML] = "1"
    try:
        return bool(cuda.is_available())
    finally:
        if before is None:
            del os.environ[_BY_NVML]
        else:
            os.environ[_BY_NVML] = before
