"""torch: its version, what it was built for, and whether it sees a device."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubblescope.doctor import needs
from bubblescope.doctor.area import Area, Here
from bubblescope.doctor.machine import Machine, older
from bubblescope.doctor.model import Check, State

_GROUP = "python"
_TIMEOUT_S = 60.0  # a first import from a network disk takes that long
_CPU = "--index-url https://download.pytorch.org/whl/cpu"
_CUDA = "--force-reinstall --index-url https://download.pytorch.org/whl/cu130"


@dataclass(frozen=True, slots=True)
class Facts:
    """version: from its metadata, "" without torch. build: "CPU", "CUDA 13.0", "ROCm 7.0" or "".

    told: what torch itself answered in a process of its own (ask/torch_cuda.py).
    """

    version: str = ""
    build: str = ""
    told: dict[str, Any] = field(default_factory=dict)


def probe(machine: Machine) -> Facts:
    """Read its metadata, then import it elsewhere."""
    package = machine.package("torch")
    if package is None:
        return Facts()
    told = machine.ask("torch_cuda", _TIMEOUT_S)
    if "error" in told:
        try:
            text = Path(str(package.locate_file("torch/version.py"))).read_text("utf-8", "replace")
        except OSError:
            text = ""
        return Facts(package.version, _build(_named(text, "cuda"), _named(text, "hip")), told)
    return Facts(str(told["version"]), _build(told["cuda"], told["hip"]), told)


def _named(text: str, name: str) -> str | None:
    """A version in torch/version.py, which holds lines such as `cuda: Optional[str] = '13.0'`."""
    found = re.search(rf"^{name}\b[^=]*=\s*['\"]([^'\"]+)", text, re.M)
    return found[1] if found else None


def _build(cuda: str | None, hip: str | None) -> str:
    return f"CUDA {cuda}" if cuda else f"ROCm {hip}" if hip else "CPU"


def judge(facts: Facts, here: Here) -> list[Check]:
    """Whether it works, and sees the GPU that is there."""
    return [_check(facts, here)]


def _check(facts: Facts, here: Here) -> Check:
    def check(state: State, text: str, why: str = "", do: str = "") -> Check:
        return Check("torch", _GROUP, "torch", state, text, why, do, version=facts.version)

    least = needs.LING_TORCH if here.gpu is False else needs.PACKAGES["torch"]
    options = _CPU if here.gpu is False else ""
    if not facts.version:
        return check(State.MISSING, "not installed", "no torch", needs.pip("torch", options, least))
    text = f"{facts.version}, {facts.build} build"
    if "error" in facts.told:
        why = f"importing it: {facts.told['error']}"
        do = "python -c 'import torch' shows all of it"
        return check(State.CANNOT, f"{text}; {why}", "torch cannot be imported", do)
    if older(facts.version, least):
        do = needs.pip("torch", f"-U {options}".strip(), least)
        return check(State.OLD, f"{text}; {least} or later is needed", "torch is too old", do)
    if facts.told.get("available"):
        number = int(facts.told.get("devices", 0))
        return check(State.OK, f"{text}, sees {number} GPU{'s' * (number != 1)}")
    if here.gpu and facts.build == "CPU":
        return check(
            State.CANNOT,
            f"{text}: it cannot use the GPU",
            "torch is a CPU build",
            needs.pip("torch", _CUDA),
        )
    if here.gpu:
        return check(
            State.CANNOT,
            f"{text}, sees no GPU",
            "torch sees no GPU",
            "python -c 'import torch; torch.cuda.init()' says why",
        )
    return check(State.OK, f"{text}, sees no GPU")


AREA = Area(probe, judge, (("torch", _GROUP, "torch"),))
