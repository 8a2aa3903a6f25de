"""What a process of an ablation is asked to do, and what it answers: typed JSON, one a line."""

from __future__ import annotations

from typing import Any

import msgspec

Options = dict[str, Any]


class _Job(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """target, options: as `targets.registry.get` takes them."""

    target: str
    options: Options


class Time(_Job, frozen=True):
    """Time rounds.

    fixed: passes that are on from before the start to after the stop. live: by rung, those that are
    on in its rounds only. rounds: number of each, and the rungs in turn. folder: where not empty, a
    target that records itself then records a short window of each rung into it: it starts once for
    both. passes: sets of them to check first, by rung, of a target that is checked while it runs.
    """

    fixed: list[str]
    live: dict[int, list[str]]
    rounds: list[tuple[int, list[int]]]
    warm_up: int
    steps: int
    folder: str = ""
    passes: dict[int, list[str]] = {}


class Record(_Job, frozen=True):
    """Record a short window of each rung into `folder`. `ceiling`: what bounds a step, too."""

    fixed: list[str]
    live: dict[int, list[str]]
    folder: str
    ceiling: bool


class Gate(_Job, frozen=True):
    """Check the correctness of sets of passes, by rung."""

    passes: dict[int, list[str]]


Job = Time | Record | Gate


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The target has started and run some steps, which took `step_ns` each in the median."""

    step_ns: int
    about: dict[str, str]
    versions: dict[str, str]


class Round(msgspec.Struct, frozen=True, tag=True):
    """One round of one rung.

    steps_ns: time of each step. tokens: given in `token_steps` steps. throttled: why the clocks of
    the device were held down, "" for not; None where that cannot be asked. part, start: filled in
    by who asked.
    """

    number: int
    rung: int
    steps_ns: list[int]
    tokens: int
    token_steps: int
    throttled: str | None = None
    part: int = 0
    start: int = 0


class Recorded(msgspec.Struct, frozen=True, tag=True):
    """A window of a rung in a .bscope file; steps [first, last) are to be looked at."""

    rung: int
    path: str
    window: tuple[int, int]


class Ceiling(msgspec.Struct, frozen=True, tag=True):
    """Bytes that a step must read, and what a copy on the device moves in a second."""

    floor_bytes: int
    bytes_per_s: int


class Checked(msgspec.Struct, frozen=True):
    """What a gate said of a rung; verdict: "passed", "failed" or "not tested"."""

    rung: int
    gate: str
    verdict: str
    detail: str


class Gates(msgspec.Struct, frozen=True, tag=True):
    """All that the gates said of one rung."""

    results: list[Checked]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """It cannot go on, and why."""

    message: str


Message = Ready | Round | Recorded | Ceiling | Gates | Failed
