"""Record ten steps of a loop from inside the program, and print what they waited for.

    python examples/trace_in_code.py

Needs a CUDA device and `pip install 'bubblescope[gpu]'`. The loop replays a CUDA graph, launches
two kernels and reads a value back each step, as a decode loop that asks for its token does.
"""

from __future__ import annotations

import torch

import bubblescope


def main() -> None:
    """Run 100 steps; steps 50 to 59 are recorded."""
    # Entered before the graph is captured: graph level sees no others.
    with bubblescope.trace(step=50, steps=10) as t:
        x = torch.zeros(1 << 20, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(100):
                x.mul_(1.01)
        for _ in range(100):
            graph.replay()
            x.add_(1)
            x.sub_(1)
            x[0].item()
            t.step()
    t.save("steps.bscope", force=True)
    print("recorded in steps.bscope: bubblescope diagnose steps.bscope")
    for read in t.diagnosis.reads:
        at = f"{read.site.file}:{read.site.line}" if read.site else "an unknown place"
        print(f"{read.name} at {at}: {(read.exposed_idle_ns_per_step or 0) / 1000:.1f} us a step")


if __name__ == "__main__":
    main()
