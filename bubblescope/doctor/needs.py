"""The oldest versions that are good for something here. Packages: as in pyproject.toml."""

from __future__ import annotations

PACKAGES = {
    "torch": "2.11",
    "triton": "3.6",
    "nvtx": "0.2.16",
    "cupti-python": "13.4",
    "nvidia-cuda-cupti": "13.4.92",
    "nsight-python": "1.1",
    "sglang": "0.5.23",
    "nvidia-ml-py": "12",
}
CUPTI = "13.4"  # the first that cupti-python 13.4 can subscribe to
DRIVER = "580"  # the first for CUDA 13, which CUPTI 13 belongs to
CAPABILITY = "7.5"  # CUPTI 13 sees Turing and later
NCU = "2026.2.1"  # nsight-python 1.1.0 refuses older ones
PERFMON_DRIVER = "565"  # the first in which CAP_PERFMON opens the counters
LING_TORCH = "2.13"  # the extra `ling`: the loop on a CPU thread


def pip(package: str, options: str = "", least: str = "") -> str:
    """The command that installs a package of the least version or later."""
    return f"pip install {options}{' ' if options else ''}'{package}>={least or PACKAGES[package]}'"
