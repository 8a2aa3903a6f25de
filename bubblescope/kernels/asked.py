"""What a process that measures is asked, and what it answers: JSON in two files."""

from __future__ import annotations

from typing import Literal

import msgspec

Way = Literal["cupti", "ncu", "steps"]
"""By nsight-python on CUPTI, by nsight-python on ncu, or only to run, under a tool that watches."""

DURATION = "gpu__time_duration.sum"
BYTES = "dram__bytes.sum"
RATE = "dram__bytes.sum.per_second"
PEAK = "dram__throughput.avg.pct_of_peak_sustained_elapsed"


class Run(msgspec.Struct, frozen=True):
    """Which steps of the embedded loop: see targets/ling and `bubblescope kernels --help`."""

    device: Literal["cuda", "cpu"] | None = None
    passes: tuple[str, ...] = ()
    accept_length: float | None = None
    layers: int | None = None
    step: int = 200
    steps: int = 10


class Asked(msgspec.Struct, frozen=True):
    """Measure these steps in that way."""

    way: Way
    run: Run


class Sample(msgspec.Struct, frozen=True):
    """One kernel launch of a step, over all steps measured.

    kernel: its name, demangled where the tool gave it mangled. values: metric -> mean, least and
    greatest, in ns, bytes or per cent.
    """

    kernel: str
    values: dict[str, tuple[float, float, float]]


class Answer(msgspec.Struct, frozen=True):
    """error: why nothing was measured, in one line; else "". The versions are "" where unused."""

    error: str = ""
    samples: list[Sample] = []
    nsight: str = ""
    cupti: str = ""
