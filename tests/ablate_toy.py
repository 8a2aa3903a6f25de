"""A target that runs on a clock of its own: its steps take exactly what is said here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from bubblescope.ablate import jobs
from bubblescope.ablate.plan import Plan, groups, rungs
from bubblescope.ablate.samples import VERSION, Samples
from bubblescope.errors import BubblescopeError
from bubblescope.targets import timed
from bubblescope.targets.record import Recording
from bubblescope.targets.target import Switch
from optimizations import registry
from optimizations.passes import PassEntry
from tests.synthetic import TraceBuilder

STEP = 1_000_000
SAVED = {"fast": 100_000, "slow": -50_000, "nothing": 0, "rebuilt": 200_000}
LIVE = ("fast", "slow", "nothing")
ABOUT = {"model": "a toy", "acceptance": "simulated acceptance, 2 tokens a step", "device": "none"}


@dataclass(frozen=True, slots=True)
class Flip(PassEntry):
    """Turns the switch of its own name on."""

    def applied(self, target: Any) -> AbstractContextManager[None]:
        on: AbstractContextManager[None] = target.switches[self.name].on()
        return on


class Toy:
    """Each step takes 1 ms less what the passes save; each start is 1 % slower than the last."""

    name = "toy"
    recordable = True

    def __init__(self, world: World) -> None:
        self.world = world
        self.switches = {name: Switch() for name in SAVED}
        self.tokens: list[int] = []
        self.rebuilt = False
        self.running = False
        self.set_up_to_be_checked = False

    def gated(self) -> Toy:
        self.set_up_to_be_checked = True
        return self

    def about(self) -> dict[str, str]:
        return self.world.about

    def start(self) -> None:
        self.running = True
        self.rebuilt = bool(self.switches["rebuilt"])  # only a start puts it in
        self.number = self.world.starts
        self.world.starts += 1
        self.world.log.append("start")

    def step(self) -> None:
        assert self.running
        saved = sum(SAVED[n] for n in LIVE if self.switches[n])
        saved += SAVED["rebuilt"] * self.rebuilt
        self.world.now += (STEP - saved) * (100 + self.number) // 100
        self.tokens += [1, 1]

    def finish(self) -> None:
        self.world.now += 12_345  # never part of a step

    def rewind(self) -> None:
        self.world.log.append("rewind")

    def stop(self) -> None:
        self.running = False
        self.world.log.append("stop")

    def record(self, level: str, first: int, steps: int, progress: Any = None) -> Recording:
        """Steps of 1,000 ns: a kernel of 600, then a read that returns with it, then 400 idle."""
        if not self.world.recordable:
            raise BubblescopeError("target toy: cannot be recorded")
        trace = TraceBuilder()
        for k in range(first - 2, first + steps + 2):
            at = 1_000 * k
            trace.step(k, at=at, dur=990)
            trace.launch("work", at=at + 10, dur=50, start=at + 100, run=600)
            trace.sync(at=at + 70, dur=640)
        return Recording(trace.timeline(), (first, first + steps))


class World:
    """The clock that all toys share, what they did, and a way to run jobs on them."""

    def __init__(self) -> None:
        self.now = 0
        self.starts = 0
        self.recordable = True
        self.about = ABOUT
        self.log: list[str] = []
        self.jobs: list[jobs.Job] = []
        self.toys: list[Toy] = []

    def make(self, name: str, **_options: Any) -> Toy:
        assert name == "toy"
        self.toys.append(Toy(self))
        return self.toys[-1]

    def launch(self, job: jobs.Job) -> Any:
        from bubblescope.ablate.measure import carry_out

        self.jobs.append(job)
        return carry_out(job, self.make)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(timed, "time", SimpleNamespace(monotonic_ns=lambda: made.now))
    listed = [Flip(n, "", (), ("toy",), live=n in LIVE) for n in SAVED]
    monkeypatch.setattr(registry, "PASSES", listed)
    return made


def samples(*passes: str, ladder: str = "alone", **shape: int) -> Samples:
    """Nothing measured yet, of those passes."""
    made = rungs([(p,) for p in passes], ladder)
    plan = Plan(
        ladder,
        made,
        groups(made, LIVE),
        **{"starts": 3, "rounds": 2, "steps": 4, "warm_up": 3, **shape},
    )
    return Samples(VERSION, "toy", {}, plan)


def orders(found: Samples) -> list[tuple[int, int, int]]:
    """(start, round, rung) as measured."""
    return [(r.start, r.number, r.rung) for r in found.rounds]


def timed_jobs(made: World) -> Sequence[jobs.Time]:
    return [j for j in made.jobs if isinstance(j, jobs.Time)]
