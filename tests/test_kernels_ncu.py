"""Nsight Compute's command line and CSV, in the format of its documentation: 2025.3."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from bubblescope.doctor import child
from bubblescope.doctor.machine import Machine
from bubblescope.errors import BubblescopeError
from bubblescope.kernels import ncu
from bubblescope.kernels.asked import DURATION, PEAK, RATE
from bubblescope.kernels.ncu import Launch, command, find, parse

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    f'"Grid Size","Device","CC","{RATE}","{PEAK}","{DURATION}"'
)
MANGLED = "_Z4gemmIfEvPT_"  # void gemm<float>(float*)


def units(rate: str = "byte/second", peak: str = "%", time: str = "nsecond") -> str:
    return ",".join(['""'] * 11 + [f'"{rate}"', f'"{peak}"', f'"{time}"'])


def row(kernel: str, rate: str, peak: str, time: str) -> str:
    place = f'"0","123","python3.12","127.0.0.1","{kernel}","1","7","(128, 1, 1)","(20, 1, 1)"'
    return f'{place},"0","9.0","{rate}","{peak}","{time}"'


def printed(*rows: str, head: str = HEAD, unit: str | None = None) -> str:
    return "\n".join(
        [
            "==PROF== Connected to process 123 (/usr/bin/python3.12)",
            '==PROF== Profiling "gemm" - 0: 0%....50%....100% - 1 pass',
            "==PROF== Disconnected from process 123",
            head,
            units() if unit is None else unit,
            *rows,
        ]
    )


def refusal(text: str) -> str:
    with pytest.raises(BubblescopeError) as raised:
        parse(text)
    assert str(raised.value).isprintable()
    return str(raised.value)


def test_base_units() -> None:
    text = printed(
        row(MANGLED, "3,500,000,000,000.50", "81.25", "12,288"),
        row("triton_kernel", "1.5e+12", "n/a", "2,048"),
    )
    assert parse(text) == [
        Launch("void gemm<float>(float*)", 12_288, 3_500_000_000_000.5, 81.25),
        Launch("triton_kernel", 2_048, 1.5e12, None),
    ]


@pytest.mark.parametrize(
    ("rate", "time", "factor", "ns"),
    [
        ("Gbyte/s", "us", 1e9, 1_000),
        ("Tbyte/second", "usecond", 1e12, 1_000),
        ("Mbyte/s", "ms", 1e6, 1_000_000),
        ("Kbyte/s", "msecond", 1e3, 1_000_000),
        ("byte/s", "s", 1, 1_000_000_000),
        ("byte/s", "ns", 1, 1),
    ],
)
def test_scaled_units(rate: str, time: str, factor: float, ns: float) -> None:
    (launch,) = parse(printed(row("k", "2.5", "50", "1.5"), unit=units(rate, "%", time)))
    assert launch == Launch("k", 1.5 * ns, 2.5 * factor, 50)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "==PROF== Connected to process 7 (/usr/bin/python3)\n==ERROR== ERR_NVGPUCTRPERM - The "
            "user does not have permission to access NVIDIA GPU Performance Counters on the target "
            "device 0. For instructions see https://developer.nvidia.com/ERR_NVGPUCTRPERM",
            "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
        ),
        (
            "==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n==PROF== Trying",
            "Failed to initialize the profiler: LibraryNotLoaded; a sandbox may hide",
        ),
        (
            "==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. gemm",
            "ncu profiled no kernel of the step; No kernels were profiled.",
        ),
        ("", "it gave no reason"),
        (printed(), "profiled no kernel"),
        (printed(row("k", "1", "2", "3"), head=HEAD.replace(RATE, "x")), f"no column {RATE}"),
        (printed(row("k", "1", "2", "3") + ',"9"'), "row 3 has 15 fields, its head has 14"),
        (printed(row("k", "1", "2", "3"), unit=units(time="cycle")), "'cycle', which is no time"),
        (printed(row("k", "1", "2", "3"), unit=units("byte")), "'byte', not in bytes per second"),
        (printed(row("k", "1", "2", "3"), unit=units(peak="")), "'', not in per cent"),
        (printed(row("k", "n/a", "2", "3")), f"no {RATE} on this GPU"),
        (printed(row("k", "1", "2", "n/a")), f"no {DURATION} on this GPU"),
        (printed(row("k", "1,23", "2", "3")), f"'1,23' is no figure for {RATE}"),
        (printed(row("k", "1", "2", "-3")), f"'-3' is no figure for {DURATION}"),
        (printed(row("k", "nan", "2", "3")), "'nan' is no figure"),
    ],
)
def test_what_is_no_result_is_one_line(text: str, says: str) -> None:
    assert says in refusal(text)


def test_the_command() -> None:
    words = command(
        "/opt/ncu", ["gemm", "a.b", "gemm"], 50, Path("/tmp/x.csv"), ["python3", "-m", "x"]
    )
    assert words[0] == "/opt/ncu"
    assert words[-3:] == ["python3", "-m", "x"]
    options = dict(pairwise(words))
    assert options["--metrics"] == f"{DURATION},{RATE},{PEAK}"
    assert options["--kernel-name"] == r"regex:^(a\.b|gemm)$"
    assert options["--launch-count"] == "50"
    assert options["--log-file"] == "/tmp/x.csv"
    assert options["--graph-profiling"] == "node"
    assert options["--clock-control"] == options["--cache-control"] == "none"
    assert options["--profile-from-start"] == "off"


def played(tmp_path: Path, says: str | None) -> Machine:
    """A machine with an ncu that prints that; with none where None."""
    folder = tmp_path / "bin"
    folder.mkdir()
    if says is not None:
        program = folder / "ncu"
        program.write_text(f"#!/bin/sh\necho '{says}'\n")
        program.chmod(0o755)
    return Machine(root=tmp_path, env={"PATH": str(folder)}, run=child.run)


def test_finding_ncu(tmp_path: Path) -> None:
    copy = find(played(tmp_path, "Version 2025.3.1.0 (build 36398880) (public-release)"))
    assert (copy.version, copy.path) == ("2025.3.1.0", str(tmp_path / "bin/ncu"))


@pytest.mark.parametrize(
    ("says", "line"), [(None, "is not installed"), ("nonsense", "ncu does not run: nonsense")]
)
def test_no_ncu_is_one_line(tmp_path: Path, says: str | None, line: str) -> None:
    with pytest.raises(BubblescopeError, match=line) as raised:
        find(played(tmp_path, says))
    assert "--dram" in str(raised.value)


def test_errors_are_raised_also_without_a_table() -> None:
    ncu.raise_errors("==PROF== fine\n")
    with pytest.raises(BubblescopeError, match="ncu: bad thing"):
        ncu.raise_errors("x\n==ERROR== bad thing\n")
