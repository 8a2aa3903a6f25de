"""Find and load CUPTI: the one that this release of cupti-python needs, before any other."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bubblescope.errors import BubblescopeError

NEEDED = 130400
"""As cuptiGetVersion counts: 13.4. An older one refuses cupti-python 13.4's subscriber."""
SONAME = "libcupti.so.13"
INSTALL = "pip install 'bubblescope[gpu]'"


def load(path: Path | None = None) -> Any:
    """The `cupti` module, with a CUPTI under it that is new enough.

    Args:
        path: the library to load, where another process has looked for it already.

    Raises:
        BubblescopeError: no cupti-python, no CUPTI of 13.4 or later, or an older CUPTI is loaded
            in this process already.
    """
    held = _loaded()
    if held is None:
        path = path or find()
        if path is None:
            raise BubblescopeError(
                f"CUPTI 13.4 or later was not found ({SONAME}: {_seen()}); {INSTALL}"
            )
        # Loaded by its path and for all, so that torch, which asks for the same soname, shares it.
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    elif _version(held) < NEEDED:
        raise BubblescopeError(
            f"CUPTI {words(_version(held))} is loaded in this process already ({held}), and "
            "recording needs 13.4 or later: enter bubblescope.trace before importing torch, or "
            "put the newer one on LD_LIBRARY_PATH"
        )
    try:
        return importlib.import_module("cupti.cupti")
    except ImportError as error:
        raise BubblescopeError(f"cupti-python cannot be imported ({error}); {INSTALL}") from None


def find() -> Path | None:
    """The first libcupti.so.13 of 13.4 or later on disk, None where there is none."""
    return next((path for path in _candidates() if _version(path) >= NEEDED), None)


def loaded_version() -> str:
    """Version of the CUPTI that this process uses, as in "13.4.1"; "" where none is loaded."""
    path = _loaded()
    return words(_version(path)) if path is not None else ""


def loaded() -> Path | None:
    """The CUPTI that this process has loaded."""
    return _loaded()


def package_version() -> str:
    """Version of cupti-python, "" where it is not installed."""
    try:
        return version("cupti-python")
    except PackageNotFoundError:
        return ""


def words(number: int) -> str:
    """130401 as "13.4.1"."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else "unknown"


def _candidates() -> Iterator[Path]:
    folders = [Path(p) / "nvidia" / "cu13" / "lib" for p in sys.path if p]
    folders += [Path(p) / "nvidia" / "cuda_cupti" / "lib" for p in sys.path if p]
    folders += [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    for root in ("/usr/local/cuda", *sorted(map(str, Path("/usr/local").glob("cuda-*")))):
        folders += [Path(root) / "extras/CUPTI/lib64", Path(root) / "targets/x86_64-linux/lib"]
    for folder in dict.fromkeys(folders):
        path = folder / SONAME
        if path.is_file():
            yield path


def _seen() -> str:
    found = [f"{words(_version(path))} in {path.parent}" for path in _candidates()]
    return f"only {found[0]}" if found else "none"


def _loaded() -> Path | None:
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in maps.splitlines():
        path = line.partition("/")[2]
        name = path.rpartition("/")[2]
        if name.startswith("libcupti.so"):
            return Path("/" + path)
    return None


def _version(path: Path) -> int:
    """What cuptiGetVersion says; 0 where the library cannot be asked.

    A library that is not loaded yet is asked in a process of its own, since loading two would
    leave torch with the wrong one.
    """
    if path == _loaded():
        return _ask(path)
    code = (
        "import ctypes,sys;l=ctypes.CDLL(sys.argv[1]);v=ctypes.c_uint32();"
        "l.cuptiGetVersion(ctypes.byref(v));print(v.value)"
    )
    return _asked_apart(code, path)


_KNOWN: dict[Path, int] = {}


def _asked_apart(code: str, path: Path) -> int:
    if path not in _KNOWN:
        import subprocess

        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        try:
            done = subprocess.run(
                [sys.executable, "-S", "-c", code, str(path)],
                capture_output=True,
                timeout=20,
                check=False,
                env=environment,
            )
            _KNOWN[path] = int(done.stdout or 0)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            _KNOWN[path] = 0
    return _KNOWN[path]


def _ask(path: Path) -> int:
    try:
        library = ctypes.CDLL(str(path))
        number = ctypes.c_uint32()
        library.cuptiGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return 0
    return number.value
