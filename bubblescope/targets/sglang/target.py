"""The target `sglang`: the real engine, decoding one sequence."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from bubblescope.capture.backend import Backend
from bubblescope.capture.join import join
from bubblescope.errors import BubblescopeError
from bubblescope.targets.record import Recording
from bubblescope.targets.sglang.link import Link
from bubblescope.targets.sglang.settings import Settings
from bubblescope.targets.target import Switch
from bubblescope.timeline import bscope

PROMPT = 64
"""Tokens of the prompt."""
WARM_UP = 40
"""Tokens of a first generation, in which kernels are compiled."""
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Steps:
    """Decode steps of one generation. began: when each began, monotonic ns. tokens: all given."""

    began: tuple[int, ...]
    tokens: int
    ids: tuple[int, ...]


class SGLang:
    """The engine, started anew by `start` and gone after `stop`.

    Args:
        model: a model path; where None, one rank's slice of Ling-3.0-flash with dummy weights.
        tp: tensor-parallel ranks.
        engine: more arguments of sglang.Engine, "name=value".
        accept_length: simulated acceptance; where None, 3.25 with dummy weights, else none.
        as_shipped: SGLang as it is, whatever passes are on. Otherwise fixes that it ships are
            taken off, but for those of the passes that are on.
    """

    name = "sglang"

    def __init__(
        self,
        model: str | None = None,
        tp: int | None = None,
        engine: tuple[str, ...] = (),
        accept_length: float | None = None,
        as_shipped: bool = True,
    ) -> None:
        self.settings = Settings.of(model, tp, engine, accept_length)
        self.as_shipped = as_shipped
        self.length_stays_on_device = Switch()
        self._link: Link | None = None
        self._version = ""
        self._windows = 0

    def about(self) -> dict[str, str]:
        """What a report must say of it."""
        said = self.settings.about()
        if self._version:
            said["sglang"] = self._version
        if self.as_shipped:
            said["length read-back"] = "as SGLang ships"
        else:
            said["length read-back"] = "off" if self.length_stays_on_device else "on"
        return said

    def start(self, progress: Progress = lambda _stage, _share: None) -> None:
        """Start the engine and generate once, which compiles kernels: a minute or more."""
        if self._link is not None:
            raise BubblescopeError("target sglang: runs already; stop it before starting it again")
        environment = {"HF_HUB_OFFLINE": "1"} if self.settings.accept_length else {}
        if self.settings.accept_length:
            environment["SGLANG_SIMULATE_ACC_LEN"] = f"{self.settings.accept_length:g}"
        link = Link(self.settings.arguments, environment)
        began = time.monotonic()

        def waiting(stage: str) -> Callable[[], None]:
            return lambda: progress(f"{stage}, {time.monotonic() - began:.0f} s", 0.0)

        try:
            self._version = str(link.wait(waiting("starting SGLang"))["sglang"])
            self._link = link
            self._check()
            self._generate(WARM_UP, waiting("compiling kernels"))
        except BaseException:
            self._link = None
            link.close()
            raise

    def run(self, steps: int, progress: Progress = lambda _stage, _share: None) -> Steps:
        """Run one generation of at least so many decode steps, timed and not recorded."""
        notes, made = self._window("steps", "", 0, steps, progress)
        return Steps(
            tuple(notes["began"]),
            int(made["meta"]["completion_tokens"]),
            tuple(made["ids"]),
        )

    def record(
        self, level: str, first: int, steps: int, progress: Progress = lambda _stage, _share: None
    ) -> Recording:
        """Record steps [first, first + steps) of one generation; starts the engine if need be.

        Raises:
            BubblescopeError: the scheduler could not record, or the steps were not reached.
        """
        if self._link is None:
            self.start(progress)
        link = self._engine()
        note, made = self._window("recorded", level, first, steps, progress)
        files = sorted(link.folder.glob(f"recorded{self._windows}-*.bscope"))
        timeline = join([bscope.read(path) for path in files])
        about = self.about()
        accepted = made["meta"].get("spec_accept_length")
        if accepted:
            about["accepted"] = f"{accepted:.2f} tokens a step"
        run = (
            f"{self.name}: {about['model']}, {about['acceptance']}; sequence-length read-back "
            f"{about['length read-back']}"
        )
        meta = structs.replace(
            timeline.meta,
            source=self.name,
            about={**timeline.meta.about, "run": run, **about},
            unprofiled_step_ns=note["unprofiled_step_ns"],
        )
        return Recording(replace(timeline, meta=meta), (first, first + steps))

    def step(self) -> None:
        """The engine cannot be stopped between steps: use `run` or `record`."""
        raise BubblescopeError("target sglang: runs whole generations, not single steps")

    def stop(self) -> None:
        """End the engine and every process of it."""
        if self._link is not None:
            link, self._link = self._link, None
            link.close()

    def backends(self) -> Sequence[Backend]:
        """None: it records in its own processes."""
        return ()

    def _engine(self) -> Link:
        if self._link is None:
            raise BubblescopeError("target sglang: is not started")
        return self._link

    def _check(self) -> None:
        """SGLang only logs what goes wrong in a plugin: look at what the plugin left."""
        if not (self._engine().folder / "cupti-0.json").exists():
            raise BubblescopeError(
                "target sglang: the plugin did not run in the scheduler's process; is "
                "SGLANG_PLUGINS set to others only?"
            )

    def _generate(self, tokens: int, waiting: Callable[[], None]) -> dict[str, Any]:
        prompt = list(range(10, 10 + PROMPT))
        return self._engine().ask(waiting, do="generate", prompt=prompt, tokens=tokens)

    def _window(
        self, name: str, level: str, first: int, steps: int, progress: Progress
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """One generation with the recorder armed; rank 0's note, and what was generated."""
        link = self._engine()
        if not self.as_shipped:
            link.ask(
                do="call",
                method="bubblescope_lengths_on_host",
                parameters={"on": not self.length_stays_on_device},
            )
        self._windows += 1
        name = f"{name}{self._windows}"
        order = {"name": name, "level": level, "first": first, "steps": steps}
        link.ask(do="call", method="bubblescope_arm", parameters=order)
        made = self._generate(
            self.settings.tokens(first + steps + 3), lambda: progress("decoding", 0.0)
        )
        notes = [json.loads(p.read_text()) for p in sorted(link.folder.glob(f"{name}-*.json"))]
        if not notes:
            raise BubblescopeError(
                f"target sglang: the generation ended before step {first + steps + 1:,}; it gave "
                f"{made['meta']['completion_tokens']:,} tokens: ask for earlier steps"
            )
        problem = next((note["problem"] for note in notes if note["problem"]), "")
        if problem:
            raise BubblescopeError(f"target sglang: {problem}")
        return notes[0], made
