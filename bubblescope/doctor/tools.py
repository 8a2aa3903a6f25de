"""NVIDIA's own profilers: nsys and ncu, on PATH and where their installers put them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from bubblescope.doctor import child, needs
from bubblescope.doctor.area import Area, Here
from bubblescope.doctor.machine import Machine, older
from bubblescope.doctor.model import Check, State

_GROUP = "tools"
_TIMEOUT_S = 15.0
_MOST = 3  # copies of a tool that are asked for their version
_PLACES = {
    "nsys": (
        "/usr/local/cuda/bin/nsys",
        "/usr/local/cuda-*/bin/nsys",
        "/opt/nvidia/nsight-systems/*/bin/nsys",
        "/opt/nvidia/nsight-systems/*/target-linux-x64/nsys",
        "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
        "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
    ),
    "ncu": (
        "/usr/local/cuda/bin/ncu",
        "/usr/local/cuda-*/bin/ncu",
        "/opt/nvidia/nsight-compute/*/ncu",
        "/opt/nvidia/nsight-compute/*/target/linux-desktop-glibc*/ncu",
    ),
}
_TITLES = {"nsys": "Nsight Systems", "ncu": "Nsight Compute"}


@dataclass(frozen=True, slots=True)
class Copy:
    """An installed copy. version: "" where it did not tell; broken: why not."""

    path: str
    version: str = ""
    broken: str = ""
    on_path: bool = False


def probe(machine: Machine) -> dict[str, tuple[Copy, ...]]:
    """Tool -> its copies: the one on PATH first, then the newest."""
    return {tool: _copies(machine, tool) for tool in _PLACES}


def _copies(machine: Machine, tool: str) -> tuple[Copy, ...]:
    on_path = machine.which(tool)
    paths = [Path(on_path)] if on_path else []
    for pattern in _PLACES[tool]:
        paths += [p for p in machine.glob(pattern) if os.access(p, os.X_OK) and p.is_file()]
    copies: dict[Path, Copy] = {}
    for path in paths:
        real = path.resolve()
        if real not in copies and len(copies) < _MOST:
            copies[real] = _ask(machine, path, on_path == str(path))
    return tuple(copies.values())


def _ask(machine: Machine, path: Path, on_path: bool) -> Copy:
    output = machine.command([str(path), "--version"], _TIMEOUT_S)
    found = re.search(r"version\s+(\d+(\.\d+)+)", output.out, re.I)
    if found:
        return Copy(str(path), found[1], "", on_path)
    return Copy(str(path), "", child.last_line(output), on_path)


def judge(copies: dict[str, tuple[Copy, ...]], here: Here) -> list[Check]:
    """One line a tool."""
    return [_nsys(copies["nsys"]), _ncu(copies["ncu"], here)]


def _nsys(copies: tuple[Copy, ...]) -> Check:
    if not copies:
        return _check("nsys", State.MISSING, "not found; nothing here needs it")
    copy = copies[0]
    if not copy.version:
        return _check("nsys", State.CANNOT, f"{copy.path}: {copy.broken}", copy=copy)
    return _check("nsys", State.OK, f"{copy.version}, {copy.path}", copy=copy)


def _ncu(copies: tuple[Copy, ...], here: Here) -> Check:
    install = f"apt-get install nsight-compute-{needs.NCU}" if here.gpu is not False else ""
    if not copies:
        return _check("ncu", State.MISSING, "not found", install)
    good = [c for c in copies if c.version and not older(c.version, needs.NCU)]
    if good:
        copy = good[0]
        text = f"{copy.version}, {copy.path}"
        if copy.on_path:
            return _check("ncu", State.OK, text, copy=copy)
        do = f"export PATH={Path(copy.path).parent}:$PATH"
        return _check("ncu", State.OK, f"{text}, not first on PATH", do, copy)
    copy = max(copies, key=lambda c: bool(c.version))
    if not copy.version:
        return _check("ncu", State.CANNOT, f"{copy.path}: {copy.broken}", install, copy)
    text = f"{copy.version}, {copy.path}; nsight-python needs {needs.NCU}"
    return _check("ncu", State.OLD, text, install, copy)


def _check(tool: str, state: State, text: str, do: str = "", copy: Copy | None = None) -> Check:
    return Check(
        tool,
        _GROUP,
        f"{_TITLES[tool]}",
        state,
        text,
        text if state is not State.OK else "",
        do,
        optional=True,
        version=copy.version if copy else "",
        path=copy.path if copy else "",
    )


AREA = Area(probe, judge, tuple((tool, _GROUP, title) for tool, title in _TITLES.items()))
