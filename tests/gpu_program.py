"""A program that knows nothing of bubblescope: `python gpu_program.py STEPS [HOW IT ENDS]`."""

from __future__ import annotations

import os
import sys
import time


def main() -> None:
    import torch

    y, x = torch.zeros(1024, device="cuda"), torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            y.add_(1)
    steps, ending = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    for number in range(steps):
        graph.replay()
        x.add_(1)
        value = x[0].item()  # READ
        if number == 100:
            print("step 100", flush=True)
    print("value", value, "pid", os.getpid())
    if ending == "raise":
        raise ValueError("the program's own")
    if ending == "abort":
        os.abort()
    if ending == "exit":
        sys.exit(3)
    if ending == "leave":
        os._exit(4)
    if ending == "wait":
        time.sleep(60)


if __name__ == "__main__":
    main()
