"""What probes look at: files, the environment, installed packages, and programs that they ask."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubblescope.doctor import child

_ASK = Path(__file__).with_name("ask")
_LIMIT = 1 << 16
_INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD")

Run = Callable[[Sequence[str], Mapping[str, str], float], child.Output]


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, as this process sees it; tests play others.

    root: where absolute paths begin. packages: folders in which Python looks for packages.
    patience: times the time that each probe is given. run: how programs are asked.
    """

    root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    packages: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    patience: float = 1.0
    run: Run = child.run

    def at(self, path: str) -> Path:
        """An absolute path."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """The beginning of a file; None where it cannot be read."""
        try:
            with self.at(path).open("rb") as file:
                return file.read(_LIMIT).decode("utf-8", "replace")
        except OSError:
            return None

    def glob(self, pattern: str) -> list[Path]:
        """Files by an absolute pattern, the newest version first where numbers tell them apart."""
        try:
            found = list(self.root.glob(pattern.lstrip("/")))
        except OSError:
            return []
        return sorted(found, key=lambda path: natural(str(path)), reverse=True)

    def which(self, program: str) -> str | None:
        """A program on PATH."""
        return shutil.which(program, path=self.env.get("PATH", os.defpath))

    def package(self, name: str) -> importlib.metadata.Distribution | None:
        """An installed package, read from its metadata: nothing is imported."""
        found = importlib.metadata.distributions(name=name, path=list(self.packages))
        return next(iter(found), None)

    def version(self, name: str) -> str:
        """The version of an installed package; "" where there is none."""
        found = self.package(name)
        return found.version if found else ""

    def parents(self) -> Iterator[tuple[int, str]]:
        """The processes that this one runs under: their ids and names, nearest first."""
        process, seen = os.getpid(), set[int]()
        while process > 1 and process not in seen:
            seen.add(process)
            status = self.text(f"/proc/{process}/status") or ""
            parent = re.search(r"^PPid:\s*(\d+)", status, re.M)
            if parent is None:
                return
            process = int(parent[1])
            name = self.text(f"/proc/{process}/comm")
            if name:
                yield process, name.strip()

    def command(self, arguments: Sequence[str], timeout_s: float) -> child.Output:
        """Run a program, without any profiler that is injected into this process."""
        env = {name: value for name, value in self.env.items() if name not in _INJECTIONS}
        return self.run(arguments, env, timeout_s * self.patience)

    def ask(self, script: str, timeout_s: float, *arguments: str) -> dict[str, Any]:
        """What a script of ask/ answers, run by this Python in a process of its own.

        An answer that did not come is {"error": why}.
        """
        # -P: a file of the working folder is not taken for a package.
        words = [sys.executable, "-P", str(_ASK / f"{script}.py"), *arguments]
        output = self.command(words, timeout_s)
        lines = output.out.strip().splitlines()
        if output.error or output.code or not lines:
            return {"error": child.last_line(output)}
        try:
            answer = json.loads(lines[-1])  # libraries may have printed before it
        except ValueError:
            answer = None
        return answer if isinstance(answer, dict) else {"error": "an answer that is not JSON"}


def numbers(version: str) -> tuple[int, ...]:
    """A version to compare by: "13.4.0+x" is (13, 4, 0)."""
    found = re.match(r"\d+(\.\d+)*", version.strip())
    return tuple(map(int, found[0].split("."))) if found else ()


def older(version: str, least: str) -> bool:
    """Whether a version is older than another; one that cannot be read is not."""
    have, want = numbers(version), numbers(least)
    if not have:
        return False
    width = max(len(have), len(want))
    return have + (0,) * (width - len(have)) < want + (0,) * (width - len(want))


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts "cuda-13.10" after "cuda-13.9"."""
    return tuple(
        (int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)
    )
