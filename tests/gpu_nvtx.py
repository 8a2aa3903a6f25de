"""A decorated step with an NVTX range, a second stream and events: `python gpu_nvtx.py FILE`.

A process of its own, since NVTX reaches CUPTI only where nothing used it before the recording.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import bubblescope
from bubblescope.ingest import load

path = Path(sys.argv[1])
side, event = torch.cuda.Stream(), torch.cuda.Event()
x = torch.zeros(1 << 20, device="cuda")


@bubblescope.trace(step=5, steps=4, save=path)
def step() -> None:
    torch.cuda.nvtx.range_push("my step")
    with torch.cuda.stream(side):
        x.add_(1)
        event.record(side)
    torch.cuda.current_stream().wait_event(event)
    x.mul_(2)
    event.synchronize()
    torch.cuda.nvtx.range_pop()


for _ in range(12):
    step()
assert load(path) == step.trace.timeline
