"""What a CUDA device moves: the measure that a floor is taken by."""

from __future__ import annotations

import torch

_BYTES = 1 << 30
_COPIES = 10


def copy_bytes_per_s() -> int:
    """Bytes read and written in a second by copies of 1 GiB on the device, best of three runs."""
    source = torch.empty(_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        target.copy_(source)
        begin.record()
        for _ in range(_COPIES):
            target.copy_(source)
        end.record()
        end.synchronize()
        best = max(best, 2 * _BYTES * _COPIES / (begin.elapsed_time(end) / 1e3))
    return int(best)
