"""Runs a plan: gates, timed starts, short recordings; what is done is kept as it comes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from bubblescope.ablate import account, jobs
from bubblescope.ablate.launch import in_a_process
from bubblescope.ablate.plan import Plan
from bubblescope.ablate.samples import Samples, Window, refuse_other_machine
from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from bubblescope.progress import Show
from bubblescope.targets.registry import checked_running
from bubblescope.timeline import Timeline

Launch = Callable[[jobs.Job], Iterator[jobs.Message]]
T = TypeVar("T", bound=jobs.Message)


def run(
    samples: Samples,
    *,
    gates: bool = True,
    launch: Launch = in_a_process,
    keep: Callable[[Samples], None] = lambda _samples: None,
    estimated: Callable[[float], None] = lambda _seconds: None,
    recorded: Callable[[int, Timeline, tuple[int, int]], None] = lambda _rung, _made, _steps: None,
    progress: Show = lambda _stage, _share: None,
) -> Samples:
    """Measure what is missing from `samples`, and return them with it.

    Args:
        samples: the plan, and what was measured already.
        gates: whether to check the passes' correctness too.
        launch: runs a job; in a process of its own unless told otherwise.
        keep: called with all so far after the gates of each rung, after every start and at an
            interruption.
        estimated: called once, after the first warm-up, with the seconds that the timed part takes.
        recorded: called with each short recording that is made: its rung, itself, its steps.
        progress: called before each stage and after each round.

    Raises:
        BubblescopeError: a target cannot be run, or is not what was measured before.
    """
    return _Run(samples, launch, keep, estimated, recorded, progress).all(gates)


class _Run:
    """The samples so far, and how to get more."""

    def __init__(
        self,
        samples: Samples,
        launch: Launch,
        keep: Callable[[Samples], None],
        estimated: Callable[[float], None],
        recorded: Callable[[int, Timeline, tuple[int, int]], None],
        progress: Show,
    ) -> None:
        self._recorded = recorded
        self._samples, self._launch, self._keep = samples, launch, keep
        self._estimated, self._progress = estimated, progress
        self._estimate_given = False
        self._part = 1 + max((r.part for r in samples.rounds), default=-1)
        self._began = time.monotonic()

    def all(self, gates: bool) -> Samples:
        try:
            self._gates = gates
            if gates and not checked_running(self._samples.target):
                self._check()
            for start in range(self._plan.starts):
                if missing := self._samples.missing(start):
                    self._start(start, missing)
                    self._keep(self._samples)
            self._record()
        except BaseException:
            self._keep(self._samples)
            raise
        self._keep(self._samples)
        return self._samples

    @property
    def _plan(self) -> Plan:
        return self._samples.plan

    def _add(self, **more: object) -> None:
        self._samples = msgspec.structs.replace(self._samples, **more)

    def _messages(self, job: jobs.Job, *kinds: type[T]) -> Iterator[T]:
        """What comes of a job, of these kinds; its process is gone when this is closed."""
        messages = self._launch(job)
        with closing(messages):  # type: ignore[type-var]
            for message in messages:
                if isinstance(message, jobs.Ready):
                    self._ready(message)
                if isinstance(message, jobs.Ceiling):
                    self._add(ceiling=message)
                if isinstance(message, kinds):
                    yield message

    def _job(self, group: Sequence[int]) -> tuple[list[str], dict[int, list[str]]]:
        """Passes that are on for a whole group, and those of each of its rungs."""
        rungs = {i: self._plan.rungs[i].passes for i in group}
        fixed = [p for p in rungs[group[0]] if all(p in passes for passes in rungs.values())]
        return fixed, {i: [p for p in passes if p not in fixed] for i, passes in rungs.items()}

    def _check(self) -> None:
        """Run the gates of every rung that has not been through them."""
        passes = self._unchecked(range(len(self._plan.rungs)))
        if not passes:
            return
        self._progress("checking the passes", 0.0)
        job = jobs.Gate(target=self._samples.target, options=self._samples.options, passes=passes)
        for made in self._messages(job, jobs.Gates):
            self._gates_done(made)

    def _gates_done(self, made: jobs.Gates) -> None:
        """Kept at once: the gates of one rung can take minutes."""
        self._add(checked=[*self._samples.checked, *made.results])
        self._keep(self._samples)

    def _unchecked(self, rungs: Iterable[int]) -> dict[int, list[str]]:
        """Passes of those of the rungs that have not been through the gates."""
        done = {c.rung for c in self._samples.checked}
        passes = {i: list(self._plan.rungs[i].passes) for i in rungs if i not in done}
        return {i: names for i, names in passes.items() if names}

    def _start(self, start: int, missing: Sequence[int]) -> None:
        """Time the missing rounds of a start, group by group."""
        plan = self._plan
        last = all(not self._samples.missing(s) for s in range(plan.starts) if s != start)
        for group, rounds in plan.order(start):
            fixed, live = self._job(group)
            running = self._gates and checked_running(self._samples.target)
            with tempfile.TemporaryDirectory(prefix="bubblescope-") as folder:
                job = jobs.Time(
                    target=self._samples.target,
                    options=self._samples.options,
                    fixed=fixed,
                    live=live,
                    rounds=[(n, rounds[n]) for n in missing],
                    warm_up=plan.warm_up,
                    steps=plan.steps,
                    folder=folder if last else "",
                    passes=self._unchecked(group) if running else {},
                )
                self._began = time.monotonic()
                self._progress(f"start {start + 1} of {plan.starts}", self._share())
                for made in self._messages(job, jobs.Round, jobs.Recorded, jobs.Gates):
                    if isinstance(made, jobs.Recorded):
                        self._window(made)
                        continue
                    if isinstance(made, jobs.Gates):
                        self._gates_done(made)
                        continue
                    mine = msgspec.structs.replace(made, part=self._part, start=start)
                    self._add(rounds=[*self._samples.rounds, mine])
                    self._progress(f"start {start + 1} of {plan.starts}", self._share())

    def _share(self) -> float:
        plan = self._plan
        return len(self._samples.rounds) / (plan.starts * plan.rounds * len(plan.rungs))

    def _ready(self, ready: jobs.Ready) -> None:
        """Compare with what was measured before; after the first warm-up, say how long it takes."""
        if self._samples.about:
            refuse_other_machine(self._samples, ready.about, ready.versions)
        else:
            self._add(about=ready.about, versions=ready.versions)
        if not self._estimate_given:
            self._estimate_given = True
            plan = self._plan
            left = sum(len(self._samples.missing(s)) for s in range(plan.starts))
            steps = left * len(plan.rungs) * (plan.steps + plan.warm_up)
            starts = sum(bool(self._samples.missing(s)) for s in range(plan.starts))
            each = time.monotonic() - self._began
            self._estimated(starts * len(plan.groups) * each + steps * ready.step_ns / 1e9)

    def _record(self) -> None:
        """Record a window of every rung that has none, and predict from the baseline's."""
        done = {w.rung for w in self._samples.windows if not w.why}
        for group in self._plan.groups:
            if done >= set(group):
                continue
            self._progress("recording a short window of each", 1.0)
            fixed, live = self._job(group)
            with tempfile.TemporaryDirectory(prefix="bubblescope-") as folder:
                job = jobs.Record(
                    target=self._samples.target,
                    options=self._samples.options,
                    fixed=fixed,
                    live=live,
                    folder=folder,
                    ceiling=0 in group,
                )
                try:
                    for made in self._messages(job, jobs.Recorded):
                        self._window(made)
                        done.add(made.rung)
                except BubblescopeError as error:  # times are measured: what is missing is said
                    for rung in set(group) - done:
                        self._put(Window(rung, None, None, None, None, "", str(error)))

    def _window(self, made: jobs.Recorded) -> None:
        timeline = load(Path(made.path))
        self._recorded(made.rung, timeline, made.window)
        self._put(account.account(made.rung, timeline, made.window))
        new = account.predict_savings(made.rung, timeline, made.window, self._plan.rungs)
        kept = [p for p in self._samples.predicted if p.of != made.rung]
        self._add(predicted=[*kept, *new])

    def _put(self, window: Window) -> None:
        kept = [w for w in self._samples.windows if w.rung != window.rung]
        self._add(windows=[*kept, window])
