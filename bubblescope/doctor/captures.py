"""From single checks to what can be recorded here."""

from __future__ import annotations

from collections.abc import Sequence

from bubblescope.doctor.model import Capture, Check, State

# (name, title, checks that must be ok), the first of which that is not is the reason.
_WAYS = (
    (
        "cupti",
        "CUDA programs through CUPTI",
        ("system", "driver", "gpu", "cupti", "cupti-python", "subscriber"),
    ),
    ("torch-profiler", "PyTorch on CUDA through torch.profiler", ("gpu", "torch", "subscriber")),
    ("cpu", "the Ling loop on a CPU thread", ("torch",)),
)


def captures(checks: Sequence[Check]) -> tuple[Capture, ...]:
    """Each way of recording, the most telling first."""
    by_name = {check.name: check for check in checks}
    found = []
    for name, title, needed in _WAYS:
        bad = [by_name[n] for n in needed if by_name[n].state is not State.OK]
        why = (bad[0].why or f"{bad[0].title}: {bad[0].found}") if bad else ""
        found.append(Capture(name, title, not bad, why))
    return tuple(found)
