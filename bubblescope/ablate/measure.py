"""Carries a job out in this process: starts the target, runs it, and says what came out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bubblescope.ablate import jobs
from bubblescope.capture.backend import Prepared
from bubblescope.capture.cupti import devices
from bubblescope.capture.nvml import Watch
from bubblescope.errors import BubblescopeError
from bubblescope.targets import registry as targets
from bubblescope.targets.record import LEAD, TIMED, Recording, RecordsItself, record
from bubblescope.targets.timed import time_steps
from bubblescope.timeline import bscope

RECORDED_STEPS = 10
_FIRST = TIMED + LEAD
"""First step recorded: enough before it to know what a step takes without the recorder."""
Make = Callable[..., Any]
Messages = Iterator[jobs.Message]


def carry_out(job: jobs.Job, make: Make = targets.get) -> Messages:
    """Do what is asked; what is closed early stops its target.

    Args:
        job: what to do.
        make: makes a target from its name and options.

    Raises:
        BubblescopeError: the target cannot be made, started, timed or recorded.
    """
    if isinstance(job, jobs.Gate):
        yield from _checked(partial(make, job.target, **job.options), job.passes)
        return
    target: Any = make(job.target, **job.options)
    if isinstance(job, jobs.Time) and job.passes:
        target = target.gated()
    if hasattr(target, "as_shipped"):
        target.as_shipped = False  # only the passes that are on decide
    if isinstance(job, jobs.Time) and job.passes:
        # Before the fixed ones are on: they too are compared with a target without them.
        try:
            yield from _checked(lambda: _Itself(target), job.passes)
        except BaseException:
            target.stop()
            raise
    with _applied(job.fixed, target):
        try:
            if isinstance(job, jobs.Time):
                yield from _timed(target, job)
            else:
                yield from _recorded(target, job)
        finally:
            target.stop()


def _applied(names: Sequence[str], target: Any) -> AbstractContextManager[None]:
    from optimizations.registry import applied

    return applied(names, target)


def _timed(target: Any, job: jobs.Time) -> Messages:
    target.start()
    first = time_steps(target, job.warm_up, max(job.warm_up, 1))
    found, uuids = devices.find()
    names = ", ".join(dict.fromkeys(device.name for device in found))
    about = ({"device": names} if names else {}) | target.about()
    yield jobs.Ready(int(np.median(first.steps_ns)), about, _versions())
    with Watch(uuids) as watch:
        for number, order in job.rounds:
            for rung in order:
                throttled = _Last(watch.throttled)
                with _applied(job.live[rung], target):
                    timed = time_steps(target, job.warm_up, job.steps, throttled)
                yield jobs.Round(
                    number,
                    rung,
                    timed.steps_ns.tolist(),
                    timed.tokens,
                    timed.token_steps,
                    throttled.said,
                )
    if job.folder and isinstance(target, RecordsItself):
        # Whoever asked sees which windows are missing, asks for them alone, and hears why.
        with suppress(BubblescopeError):
            yield from _written(_itself(target, job.live), job.folder)
        if 0 in job.live:
            yield from _ceiling(target)


class _Last:
    """Asks when it is called, and keeps the answer."""

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask
        self.said: str | None = None

    def __call__(self) -> None:
        self.said = self._ask()


def _recorded(target: Any, job: jobs.Record) -> Messages:
    recordings = (
        _itself(target, job.live) if isinstance(target, RecordsItself) else _by_backend(target, job)
    )
    yield from _written(recordings, job.folder)
    if job.ceiling:
        yield from _ceiling(target)


def _ceiling(target: Any) -> Messages:
    if hasattr(target, "floor_bytes"):
        floor = target.floor_bytes()
        if floor is not None:
            from bubblescope.targets.bandwidth import copy_bytes_per_s

            yield jobs.Ceiling(floor, copy_bytes_per_s())


def _written(recordings: Iterator[tuple[int, Recording]], folder: str) -> Messages:
    for rung, recording in recordings:
        path = Path(folder) / f"{rung}.bscope"
        bscope.write(recording.timeline, path)
        yield jobs.Recorded(rung, str(path), recording.window)


def _itself(
    target: RecordsItself, live: Mapping[int, Sequence[str]]
) -> Iterator[tuple[int, Recording]]:
    for rung, passes in live.items():
        with _applied(passes, target):
            yield rung, target.record("graph", _FIRST, RECORDED_STEPS)


def _by_backend(target: Any, job: jobs.Record) -> Iterator[tuple[int, Recording]]:
    """One recorder for all windows of a process: only one can hold CUPTI."""
    backend = target.backends()[0]
    if isinstance(backend, Prepared):
        backend.prepare()  # it sees only graphs captured from now on
    target.start()
    for rung, passes in job.live.items():
        with _applied(passes, target):
            yield rung, record(target, backend, first=_FIRST, steps=RECORDED_STEPS)


@dataclass(frozen=True, slots=True)
class _Itself:
    """Offers a target that is set up to be checked as it is."""

    target: Any

    def gated(self) -> Any:
        return self.target


def _checked(factory: Callable[[], Any], passes: Mapping[int, Sequence[str]]) -> Messages:
    from bubblescope.ablate.gates import Gates

    gates = Gates(factory)
    for rung, names in passes.items():
        try:
            results = gates.check(names)
        except BubblescopeError as error:  # the times can be measured all the same
            yield jobs.Gates([jobs.Checked(rung, "all", "not tested", str(error))])
            continue
        yield jobs.Gates([jobs.Checked(rung, r.gate, str(r.verdict), r.detail) for r in results])


def _versions() -> dict[str, str]:
    known = {"bubblescope": version("bubblescope"), "python": sys.version.split()[0]}
    torch = sys.modules.get("torch")
    return known if torch is None else {**known, "torch": str(torch.__version__)}
