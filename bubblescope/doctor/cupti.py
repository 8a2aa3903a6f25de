"""CUPTI: which library would be loaded, and whether cupti-python is there to drive it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bubblescope.doctor import needs
from bubblescope.doctor.area import Area, Here
from bubblescope.doctor.machine import Machine, natural, older
from bubblescope.doctor.model import Check, State

_GROUP = "cupti"
_TIMEOUT_S = 20.0
_NUMBERED = 130000  # since CUDA 13; before it the number was a small count
_SEARCHED = ("pip", "LD_LIBRARY_PATH", "CUDA toolkit")  # as capture/cupti/library.py does
_INSTALL = needs.pip("nvidia-cuda-cupti", "--no-deps")
_DATED = {"2025.1": "12", "2025.2": "12", "2025.3": "13.0", "2025.4": "13.1"}
_TOOLKITS = ("/usr/local/cuda", "/usr/local/cuda-*")
_ELSEWHERE = ("/usr/lib/*-linux-gnu", "/opt/cuda/extras/CUPTI/lib64")
_IN_TOOLKIT = ("extras/CUPTI/lib64", "targets/*/lib")


@dataclass(frozen=True, slots=True)
class Library:
    """A libcupti. version: "" where nothing says. via: how it was found.

    searched: whether a recording looks for it there. broken: why it cannot be loaded.
    """

    path: str
    version: str
    via: str
    searched: bool = True
    broken: str = ""

    @property
    def good(self) -> bool:
        """Whether it is new enough."""
        return not self.broken and bool(self.version) and not older(self.version, needs.CUPTI)


@dataclass(frozen=True, slots=True)
class Facts:
    """libraries: in the order of search. package: cupti-python's version, "" without.

    broken: why cupti-python cannot be imported.
    """

    libraries: tuple[Library, ...]
    package: str = ""
    broken: str = ""


def probe(machine: Machine) -> Facts:
    """Look for libraries; ask the one that would be loaded, and import cupti-python, elsewhere."""
    libraries = find(machine)
    package = machine.version("cupti-python")
    chosen = choose(libraries)
    if chosen is None and not package:
        return Facts(libraries)
    told = machine.ask("cupti_python", _TIMEOUT_S, *([chosen.path] if chosen else []))
    number = int(told.get("version", 0))
    if chosen is not None:
        asked = replace(chosen, broken=str(told.get("library", "")))
        if number >= _NUMBERED and not chosen.version.startswith(_api(number)):
            asked = replace(asked, version=_api(number))
        libraries = tuple(asked if lib is chosen else lib for lib in libraries)
    broken = str(told.get("error") or told.get("package") or "") if package else ""
    return Facts(libraries, package, broken)


def choose(libraries: Sequence[Library]) -> Library | None:
    """The one that a recording takes: the first that is new enough, else the first of all."""
    ranked = sorted(libraries, key=lambda lib: (not lib.searched, not lib.good))
    return ranked[0] if ranked else None


def find(machine: Machine) -> tuple[Library, ...]:
    """Every libcupti in the places where it is looked for, each once, in the order of search."""
    found: list[Library] = []
    seen: set[Path] = set()
    for via, folder in _folders(machine):
        try:
            files = [p for p in folder.glob("libcupti.so*") if p.is_file()]
        except OSError:
            continue
        # libcupti.so.13 before libcupti.so.12 and libcupti.so.
        for file in sorted(files, key=lambda p: natural(p.name), reverse=True)[:1]:
            real = file.resolve()
            if real not in seen:
                seen.add(real)
                found.append(Library(str(file), _version(file), via, via in _SEARCHED))
    return tuple(found)


def _folders(machine: Machine) -> list[tuple[str, Path]]:
    """(how, folder): packages, conda, the loader's path, CUDA_HOME, toolkits, the system."""
    folders: list[tuple[str, Path]] = []
    for site in machine.packages:
        if site:
            nvidia = Path(site) / "nvidia"
            folders += [("pip", p) for p in _sorted(nvidia.glob("cu[0-9]*/lib"))]
            folders += [("pip", nvidia / "cuda_cupti" / "lib")]
    for folder in machine.env.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            folders.append(("LD_LIBRARY_PATH", machine.at(folder)))
    for toolkit in _TOOLKITS:
        for inside in _IN_TOOLKIT:
            folders += [("CUDA toolkit", p) for p in machine.glob(f"{toolkit}/{inside}")]
    if "CONDA_PREFIX" in machine.env:
        folders.append(("conda", Path(machine.env["CONDA_PREFIX"]) / "lib"))
    for name in ("CUDA_PATH", "CUDA_HOME"):
        if machine.env.get(name):
            for inside in _IN_TOOLKIT:
                folders += [(name, p) for p in machine.glob(f"{machine.env[name]}/{inside}")]
    for pattern in _ELSEWHERE:
        folders += [("system", p) for p in machine.glob(pattern)]
    return folders


def _sorted(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda p: natural(p.name), reverse=True)


def _version(library: Path) -> str:
    """The version, from the package or header beside it, else from the file's own name."""
    folder = library.parent
    for site in folder.parents:
        if site.name == "nvidia":
            names = [p.name for p in site.parent.glob("nvidia_cuda_cupti*.dist-info")]
            # nvidia_cuda_cupti_cu12 is the package of the folder cuda_cupti.
            old = folder.parent.name == "cuda_cupti"
            for name in names:
                found = re.match(r"nvidia_cuda_cupti(_cu\d+)?-([\d.]+)\.dist-info", name)
                if found and bool(found[1]) == old:
                    return found[2]
    for header in ("../include/cupti_version.h", "../../include/cupti_version.h"):
        try:
            text = (folder / header).read_text("utf-8", "replace")
        except OSError:
            continue
        number = re.search(r"#define\s+CUPTI_API_VERSION\s+(\d+)", text)
        if number:
            return _api(int(number[1]))
    found = re.search(r"libcupti\.so\.(\d+)(\.\d+)?", library.resolve().name)
    if not found:
        return ""
    # Toolkits name the file by its date; a name of 13 alone says nothing of 13.0 or 13.4.
    major = int(found[1])
    if major < 13 or 2020 <= major < 2025:
        return "12" if major >= 12 else found[1]
    return _DATED.get(f"{found[1]}{found[2]}", "")


def _api(number: int) -> str:
    """CUPTI's own number in words: 130400 is 13.4. Before 13 it was a small count."""
    return (
        f"{number // 10000}.{number % 10000 // 100}"
        if number >= _NUMBERED
        else f"12 (API {number})"
    )


def judge(facts: Facts, here: Here) -> list[Check]:
    """The library and the bindings."""
    return [_library(facts, here), _bindings(facts, here)]


def _library(facts: Facts, here: Here) -> Check:
    install = _INSTALL if here.gpu is not False else ""
    chosen = choose(facts.libraries)

    def check(state: State, text: str, why: str = "", do: str = "") -> Check:
        found = chosen or Library("", "", "")
        return Check(
            "cupti",
            _GROUP,
            "CUPTI library",
            state,
            text,
            why,
            do,
            optional=here.gpu is False,
            version=found.version,
            path=found.path,
        )

    if chosen is None:
        return check(State.MISSING, "no libcupti found", "no CUPTI library", install)
    where = f"{chosen.via}: {chosen.path}"
    if chosen.broken:
        text = f"{where}: {chosen.broken}"
        return check(State.CANNOT, text, "the CUPTI library cannot be loaded", install)
    if chosen.good and chosen.searched:
        return check(State.OK, f"{chosen.version}, {where}")
    elsewhere = [lib for lib in facts.libraries if lib.good]
    if elsewhere:
        other = elsewhere[0]
        return check(
            State.CANNOT,
            f"{other.version}, but where nobody looks, {other.via}: {other.path}",
            "no CUPTI library where it is looked for",
            f"export LD_LIBRARY_PATH={Path(other.path).parent}:$LD_LIBRARY_PATH",
        )
    if not chosen.version:
        text = f"version not known, {where}; {needs.CUPTI} or later is needed"
        return check(State.CANNOT, text, "a CUPTI library of unknown version", install)
    why = f"CUPTI {chosen.version} is older than {needs.CUPTI}"
    return check(State.OLD, f"{chosen.version}, older than {needs.CUPTI}, {where}", why, install)


def _bindings(facts: Facts, here: Here) -> Check:
    least, version = needs.PACKAGES["cupti-python"], facts.package

    def check(state: State, text: str, why: str = "", do: str = "") -> Check:
        return Check("cupti-python", _GROUP, "cupti-python", state, text, why, do, version=version)

    if not version:
        do = needs.pip("cupti-python") if here.gpu is not False else ""
        return check(State.MISSING, "not installed", "no cupti-python", do)
    if facts.broken:
        text = f"{version}, but it cannot be imported: {facts.broken}"
        do = needs.pip("cupti-python", "--force-reinstall")
        return check(State.CANNOT, text, "cupti-python cannot be imported", do)
    if older(version, least):
        text = f"{version}; {least} or later is needed"
        return check(
            State.OLD,
            text,
            f"cupti-python {version} is older than {least}",
            needs.pip("cupti-python", "-U"),
        )
    return check(State.OK, version)


AREA = Area(
    probe,
    judge,
    (("cupti", _GROUP, "CUPTI library"), ("cupti-python", _GROUP, "cupti-python")),
)
