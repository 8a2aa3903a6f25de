"""All that an ablation has measured, in a file that a later run goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bubblescope.ablate import jobs
from bubblescope.ablate.plan import Plan, whole_rounds
from bubblescope.errors import BubblescopeError
from bubblescope.whole import written

VERSION = 1
_SAME = ("model", "shard", "weights", "acceptance", "device")
"""What of `about` must not differ between the parts of an ablation."""


class Window(msgspec.Struct, frozen=True):
    """What a short recording of a rung says, each a step; None where it is not known.

    step_ns: with the recorder. capture: how it was recorded; "" where it could not be, and `why`.
    """

    rung: int
    step_ns: int | None
    idle_ns: int | None
    reads: float | None
    launches: float | None
    capture: str
    why: str = ""


class Predicted(msgspec.Struct, frozen=True):
    """Time that passes of a rung are predicted to save a step, or why there is no figure.

    of: the rung whose recording it is predicted from. The passes are those that it lacks.
    """

    rung: int
    saving_ns: int | None
    why: str = ""
    of: int = 0


class Samples(msgspec.Struct, frozen=True):
    """What was planned, on what it ran, and all that came out, in the order measured.

    about, versions: as the target said at its first start. left_out: passes of the target that
    cannot be put on it here, and why.
    """

    version: int
    target: str
    options: dict[str, Any]
    plan: Plan
    about: dict[str, str] = {}
    versions: dict[str, str] = {}
    rounds: list[jobs.Round] = []
    windows: list[Window] = []
    predicted: list[Predicted] = []
    checked: list[jobs.Checked] = []
    ceiling: jobs.Ceiling | None = None
    left_out: dict[str, str] = {}

    def parts(self) -> int:
        """In how many runs of the program the rounds were measured."""
        return len({r.part for r in self.rounds})

    def whole(self) -> set[tuple[int, int, int]]:
        """The (part, start, round) that count: see `plan.whole_rounds`."""
        measured = [(r.part, r.start, r.number, r.rung) for r in self.rounds]
        return set(whole_rounds(self.plan, measured))

    def missing(self, start: int) -> list[int]:
        """Rounds of a start that are still to be measured."""
        done = {number for _, of_start, number in self.whole() if of_start == start}
        return [n for n in range(self.plan.rounds) if n not in done]


def load(path: Path) -> Samples:
    """The samples in a file.

    Raises:
        BubblescopeError: it is not there, not such a file, or of a newer version.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BubblescopeError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        found = msgspec.json.decode(text, type=Samples)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BubblescopeError(
            f"{path}: not a file of `bubblescope ablate --out` ({error}); name another, or begin "
            "anew with --out"
        ) from None
    if found.version > VERSION:
        raise BubblescopeError(
            f"{path}: written by a newer bubblescope (version {found.version}, this one reads "
            f"{VERSION}); upgrade bubblescope"
        )
    return found


def save(samples: Samples, path: Path) -> None:
    """Write them, whole or not at all, over what was there before."""
    with written(path) as out:
        out.write(msgspec.json.encode(samples) + b"\n")


def refuse_other_machine(
    samples: Samples, about: Mapping[str, str], versions: Mapping[str, str]
) -> None:
    """Raise where a target is not what the samples were measured on.

    Raises:
        BubblescopeError: it names the first difference.
    """
    for then, now in ((samples.about, about), (samples.versions, versions)):
        for key in then if then is samples.versions else _SAME:
            if then.get(key) != now.get(key):
                raise BubblescopeError(
                    f"the rounds so far were measured with {key} {then.get(key, 'not stated')!r}, "
                    f"this is {now.get(key, 'not stated')!r}: they cannot be joined; begin anew "
                    "with --out"
                )
