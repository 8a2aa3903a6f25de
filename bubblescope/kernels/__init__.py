"""The kernels of a step: how often each runs, for how long, and what share of the step it takes."""

from bubblescope.kernels.model import Dram, DramRun, Kernel, Kernels, Nsight, NsightRun
from bubblescope.kernels.table import tabulate

__all__ = ["Dram", "DramRun", "Kernel", "Kernels", "Nsight", "NsightRun", "tabulate"]
