"""Nsight Compute's command line: what it is asked, and the CSV that it prints.

Options are those of ncu 2025.3: docs.nvidia.com/nsight-compute/NsightComputeCli.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bubblescope.capture.cupti.demangle import demangle
from bubblescope.doctor.machine import Machine
from bubblescope.doctor.tools import Copy, probe
from bubblescope.errors import BubblescopeError
from bubblescope.kernels.asked import DURATION, PEAK, RATE

_TIME_NS = {"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6}
_TIME_NS |= {"s": 1e9, "second": 1e9}
_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_RATE = re.compile(r"^([KMGT]?)byte/s(?:econd)?$")
_NUMBER = re.compile(r"^\d{1,3}(?:,\d{3})+(?:\.\d+)?$|^\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$")
_PERMISSION = (
    "ncu: this user may not read the GPU's counters (ERR_NVGPUCTRPERM); run as root, or load the "
    "driver with NVreg_RestrictProfilingToAdminUsers=0; a container needs --cap-add=SYS_ADMIN"
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel as ncu profiled it. percent_of_peak: None where ncu gave none."""

    kernel: str
    ns: float
    bytes_per_second: float
    percent_of_peak: float | None


def find(machine: Machine | None = None) -> Copy:
    """The ncu to use: the one on PATH, else the newest.

    Raises:
        BubblescopeError: there is none that runs.
    """
    copies = probe(machine or Machine())["ncu"]
    working = [copy for copy in copies if copy.version]
    if working:
        return working[0]
    if copies:
        raise BubblescopeError(f"--dram: {copies[0].path} does not run: {copies[0].broken}")
    raise BubblescopeError(
        "--dram: Nsight Compute (ncu) is not installed, on PATH or where its installer puts it; "
        "apt-get install nsight-compute, or leave out --dram"
    )


def command(
    ncu: str, functions: Iterable[str], launches: int, log: Path, program: Sequence[str]
) -> list[str]:
    """The command that profiles the named functions of a program.

    Kernels of graphs are profiled as nodes, from cudaProfilerStart on. Clocks and caches are left
    as the program has them. Names are printed mangled, so that they are demangled as ours are.

    Args:
        ncu: the program.
        functions: bare identifiers, as names.function gives them.
        launches: how many to profile at most.
        log: where its output goes, the CSV among it.
        program: the command line to profile.
    """
    wanted = "|".join(sorted({re.escape(name) for name in functions}))
    return [
        *(ncu, "--csv", "--page", "raw", "--print-units", "base"),
        *("--metrics", ",".join((DURATION, RATE, PEAK))),
        *("--target-processes", "all", "--graph-profiling", "node", "--replay-mode", "kernel"),
        *("--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off"),
        *("--kernel-name-base", "function", "--print-kernel-base", "mangled"),
        *("--kernel-name", f"regex:^({wanted})$", "--launch-count", str(launches)),
        *("--log-file", str(log), "--force-overwrite"),
        *program,
    ]


def parse(text: str) -> list[Launch]:
    """The launches in what ncu printed with --csv --page raw.

    Raises:
        BubblescopeError: it tells of an error, profiled nothing, or is not such a table.
    """
    raise_errors(text)
    lines = [line for line in text.splitlines() if line.startswith('"')]
    table = list(csv.reader(lines, strict=True))
    if len(table) < 3:
        raise BubblescopeError(
            "ncu profiled no kernel of the step; " + _last(text, "WARNING", "it gave no reason")
        )
    head, units, *rows = table
    missing = [name for name in ("Kernel Name", DURATION, RATE, PEAK) if name not in head]
    if missing:
        raise BubblescopeError(f"ncu's CSV has no column {missing[0]}")
    for number, row in enumerate(table, 1):
        if len(row) != len(head):
            raise BubblescopeError(
                f"ncu's CSV: row {number} has {len(row)} fields, its head has {len(head)}"
            )
    kernel, time, rate, peak = (head.index(n) for n in ("Kernel Name", DURATION, RATE, PEAK))
    to_ns, to_rate = _time(units[time]), _bytes(units[rate])
    if units[peak] not in ("%", "pct"):
        raise BubblescopeError(f"ncu's CSV: {PEAK} is in {units[peak]!r}, not in per cent")
    found: list[Launch] = []
    for row in rows:
        ns, per_second = _number(row[time], DURATION), _number(row[rate], RATE)
        if ns is None or per_second is None:
            name = DURATION if ns is None else RATE
            raise BubblescopeError(f"ncu has no {name} on this GPU (n/a)")
        share = _number(row[peak], PEAK)
        found.append(Launch(demangle(row[kernel]), ns * to_ns, per_second * to_rate, share))
    return found


def raise_errors(text: str) -> None:
    """Raise for the first error that ncu tells of, if any.

    Raises:
        BubblescopeError: it, in one line.
    """
    if "ERR_NVGPUCTRPERM" in text:
        raise BubblescopeError(_PERMISSION)
    found = re.search(r"^==ERROR==\s*(.+)$", text, re.M)
    if found:
        why = "; a sandbox may hide the GPU's counters" if "LibraryNotLoaded" in found[1] else ""
        raise BubblescopeError(f"ncu: {found[1].strip()}{why}")


def _last(text: str, level: str, otherwise: str) -> str:
    found = re.findall(rf"^=={level}==\s*(.+)$", text, re.M)
    return found[-1].strip() if found else otherwise


def _time(unit: str) -> float:
    if unit not in _TIME_NS:
        raise BubblescopeError(f"ncu's CSV: {DURATION} is in {unit!r}, which is no time")
    return float(_TIME_NS[unit])


def _bytes(unit: str) -> float:
    found = _RATE.match(unit)
    if found is None:
        raise BubblescopeError(f"ncu's CSV: {RATE} is in {unit!r}, not in bytes per second")
    return _PREFIX[found[1]]


def _number(text: str, metric: str) -> float | None:
    if text == "n/a":
        return None
    if not _NUMBER.match(text):
        raise BubblescopeError(f"ncu's CSV: {text!r} is no figure for {metric}")
    return float(text.replace(",", ""))
