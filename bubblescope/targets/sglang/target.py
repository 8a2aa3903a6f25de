"""The target `sglang`: the real engine, decoding one sequence."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from bubblescope.capture.backend import Backend
from bubblescope.capture.join import join
from bubblescope.errors import BubblescopeError
from bubblescope.targets.record import Recording
from bubblescope.targets.sglang import routing, starting
from bubblescope.targets.sglang.link import Link
from bubblescope.targets.sglang.settings import Settings
from bubblescope.targets.sglang.switches import AT_START, SHIPPED, SWITCHES, problem
from bubblescope.targets.target import Switch
from bubblescope.timeline import bscope

PROMPT = 64
"""Tokens of the prompt."""
WARM_UP = 40
"""Tokens of a first generation, in which kernels are compiled."""
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Steps:
    """Decode steps of one generation.

    began: when each of the first ones began, monotonic ns. tokens: given by all `token_steps` of
    it, which are more. ids: of all tokens, with that which the prompt gave.
    """

    began: tuple[int, ...]
    tokens: int
    token_steps: int
    ids: tuple[int, ...]


class SGLang:
    """The engine, started anew by `start` and gone after `stop`.

    Args:
        model: a model path; where None, one rank's slice of Ling-3.0-flash with dummy weights.
        tp: tensor-parallel ranks.
        engine: more arguments of sglang.Engine, "name=value".
        accept_length: simulated acceptance; where None, 3.25 with dummy weights, else none.
        weights: "spread" or "dummy", see `settings.Settings`; of a model with dummy weights only.
        as_shipped: fixes that SGLang ships are on, besides the passes that are. Otherwise they are
            taken off, but for those of the passes that are on.
    """

    name = "sglang"
    checked_running = True

    def __init__(
        self,
        model: str | None = None,
        tp: int | None = None,
        engine: Sequence[str] = (),
        accept_length: float | None = None,
        weights: str | None = None,
        as_shipped: bool = True,
    ) -> None:
        self._made_with = (model, tp, tuple(engine), accept_length, weights)
        self.settings = Settings.of(*self._made_with)
        self.as_shipped = as_shipped
        self.length_stays_on_device = Switch()
        self.switches = {name: Switch() for name in SWITCHES}
        self._facts: dict[str, str] = {}
        self._set: dict[str, Any] | None = None
        self._link: Link | None = None
        self._started_with: dict[str, Any] = {}
        self._ranks = 1
        self._missed: list[str] = []
        self._version = self._routed = ""
        self._experts: float | None = None
        self._windows = 0

    def about(self) -> dict[str, str]:
        """What a report must say of it."""
        said = self.settings.about()
        if self._version:
            said["sglang"] = self._version
        said["fixes"] = self._fixes()
        variables = starting.inherited(os.environ, self._environment())
        if variables:
            said["environment"] = variables
        if self._missed:
            said["not found in this release"] = ", ".join(self._missed)
        if self._facts:
            said["switches"] = "; ".join(f"{k}: {v}" for k, v in self._facts.items())
        return said

    def gated(self) -> SGLang:
        """The same model, to be checked; see `bubblescope.targets.gated`."""
        from bubblescope.targets.sglang.gated import GatedSGLang

        return GatedSGLang(*self._made_with, as_shipped=False)

    def start(self, progress: Progress = lambda _stage, _share: None) -> None:
        """Start the engine and generate once, which compiles kernels: a minute or more."""
        if self._link is not None:
            raise BubblescopeError("target sglang: runs already; stop it before starting it again")
        arguments = self._arguments()
        link = Link(arguments, self._environment())
        self._facts, self._routed, self._experts = {}, "", None
        self._started_with = arguments
        # A switch that was thrown before the start must show that it took hold.
        self._set = None if self._wanted() & AT_START else self._as_started()
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
        meta = made["meta"]
        after_prompt = int(meta["completion_tokens"]) - 1
        steps_made = int(meta.get("spec_verify_ct") or after_prompt)
        return Steps(tuple(notes["began"]), after_prompt, steps_made, tuple(made["ids"]))

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
        files = [
            link.folder / f"recorded{self._windows}-{rank}.bscope" for rank in range(self._ranks)
        ]
        timeline = join([bscope.read(path) for path in files])
        about = self.about()
        accepted = made["meta"].get("spec_accept_length")
        if accepted:
            about["accepted"] = f"{accepted:.2f} tokens a step"
        about["routing"] = self._routing(made["ids"], progress)
        run = f"{self.name}: {about['model']}, {about['acceptance']}; fixes: {about['fixes']}"
        meta = structs.replace(
            timeline.meta,
            source=self.name,
            about={**timeline.meta.about, "run": run, **about},
            unprofiled_step_ns=note["unprofiled_step_ns"],
        )
        return Recording(replace(timeline, meta=meta), (first, first + steps))

    def _routing(self, ids: list[int], progress: Progress) -> str:
        """Distinct experts that a step's tokens go to; asked once after each start."""
        if not self._routed:
            try:
                self._routed = self._count_experts(ids, progress)
            except BubblescopeError as error:  # the recording is there, and worth more
                self._routed = f"not known: {error}"
        return self._routed

    def _count_experts(self, ids: list[int], progress: Progress) -> str:
        link = self._engine()
        prompt = [*self._prompt(), *ids][-routing.TOKENS :]
        self._call("bubblescope_routing_begin", {}, progress)
        link.ask(lambda: progress("counting experts", 0.0), do="generate", prompt=prompt, tokens=1)
        group = {"group": self.settings.most_tokens}
        self._call("bubblescope_routing_end", group, progress)
        said = json.loads((link.folder / "routing-0.json").read_text())
        self._experts = said.get("distinct")
        return routing.describe(said)

    def floor_bytes(self) -> int | None:
        """Bytes that a step must read on a rank; None until a window was recorded.

        None too for a model of another architecture than Ling-3.0-flash's.
        """
        from bubblescope.targets.sglang.floor import step_bytes

        return None if self._experts is None else step_bytes(self.settings, self._experts)

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

    def _fixes(self) -> str:
        on = self._wanted()
        if self.as_shipped and on == SHIPPED:
            return "as SGLang ships"
        kept = [name for name in SWITCHES if name in on]
        if self.as_shipped or self.length_stays_on_device:
            kept.insert(0, "sequence length not read back")
        return ", ".join(kept) or "none"

    def _environment(self) -> dict[str, str]:
        said = self.settings.environment()
        return said if self.as_shipped else said | starting.SHIPPED_ENVIRONMENT

    def _arguments(self) -> dict[str, Any]:
        """Of sglang.Engine."""
        return starting.arguments(self.settings.arguments, self._wanted())

    def at_start(self, name: str) -> AbstractContextManager[None]:
        """Turn a switch on that is decided before the start, until this exits.

        Raises:
            BubblescopeError: an engine with these arguments cannot have it.
        """
        starting.refuse(self.settings.arguments)
        return self.switches[name].on()

    def _wanted(self) -> frozenset[str]:
        """Switches that are to be on."""
        on = frozenset(name for name, switch in self.switches.items() if switch)
        return on | SHIPPED if self.as_shipped else on

    def _as_started(self) -> dict[str, Any]:
        return {
            "on": sorted(SHIPPED),
            "lengths_on_host": None,
            "accept_length": self.settings.accept_length,
        }

    def _prepare(
        self,
        accept_length: float,
        progress: Progress = lambda _stage, _share: None,
    ) -> None:
        """Set the running engine to what passes ask for, and check that each rank says so.

        Raises:
            BubblescopeError: a switch did not take hold.
        """
        if self._arguments() != self._started_with:
            raise BubblescopeError(
                "target sglang: a pass that is put on before the engine starts was put on or taken "
                "off while it runs; stop it first"
            )
        on = self._wanted()
        asked = frozenset(name for name, switch in self.switches.items() if switch)
        lengths_on_host = False if self.length_stays_on_device else None
        if not (self.as_shipped or self.length_stays_on_device):
            lengths_on_host = True
        wanted: dict[str, Any] = {
            "on": sorted(on - AT_START),
            "lengths_on_host": lengths_on_host,
            "accept_length": accept_length,
        }
        if wanted == self._set:
            return
        self._set = None  # if it fails halfway nobody knows
        for path in self._engine().folder.glob("facts-*.json"):
            path.unlink()
        self._call("bubblescope_set", wanted, progress)
        for rank, said in enumerate(self._left("facts", "take the switches")):
            wrong = problem(said, on, asked)
            lengths = said["sequence lengths"]
            if lengths_on_host is False and lengths != "stay on the device":
                wrong = f"seq-len-sync has nothing to do: sequence lengths are {lengths}"
            if wrong:
                where = f" on rank {rank}" if rank else ""
                raise BubblescopeError(
                    f"target sglang: {wrong}{where}: SGLang {self._version} with this model and "
                    "these arguments does not take that pass"
                )
            if not rank:
                self._facts = said
        self._set = wanted

    def _call(self, method: str, parameters: dict[str, Any], progress: Progress) -> None:
        """Have every rank do something; returns when all have done it, or tried to."""
        self._engine().ask(
            lambda: progress("switching the engine", 0.0),
            do="call",
            method=method,
            parameters=parameters,
        )

    def _left(self, name: str, what: str) -> list[Any]:
        """What each rank left in a file of that name. SGLang passes on what rank 0 says only."""
        link = self._engine()
        paths = [link.folder / f"{name}-{rank}.json" for rank in range(self._ranks)]
        missing = [str(rank) for rank, path in enumerate(paths) if not path.exists()]
        if missing:
            raise link.failed(f"rank {', '.join(missing)} of {self._ranks} did not {what}")
        return [json.loads(path.read_text()) for path in paths]

    def _check(self) -> None:
        """SGLang only logs what goes wrong in a plugin: look at what the plugin left."""
        folder = self._engine().folder
        if not (folder / "engine-0.json").exists():
            raise BubblescopeError(
                f"target sglang: the plugin did not run in the scheduler's process of SGLang "
                f"{self._version}; 0.5.23 or later is needed, and SGLANG_PLUGINS not set to others "
                "only"
            )
        said = json.loads((folder / "engine-0.json").read_text())
        self._ranks, self._missed = said["ranks"], said["missed"]
        self.settings = replace(self.settings, verified=said["tokens"])
        self._left("engine", "load the plugin")

    def _generate(self, tokens: int, waiting: Callable[[], None]) -> dict[str, Any]:
        return self._engine().ask(waiting, do="generate", prompt=self._prompt(), tokens=tokens)

    def _prompt(self) -> list[int]:
        return list(range(10, 10 + PROMPT))

    def _window(
        self, name: str, level: str, first: int, steps: int, progress: Progress
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """One generation with the recorder armed; rank 0's note, and what was generated."""
        link = self._engine()
        self._prepare(self.settings.accept_length, progress)
        self._windows += 1
        name = f"{name}{self._windows}"
        order = {"name": name, "level": level, "first": first, "steps": steps}
        self._call("bubblescope_arm", order, progress)
        made = self._generate(
            self.settings.tokens(first + steps + 3), lambda: progress("decoding", 0.0)
        )
        # Other ranks than the first may still be at it: this waits for all of them.
        self._call("bubblescope_disarm", {}, progress)
        if not list(link.folder.glob(f"{name}-*.json")):
            raise BubblescopeError(
                f"target sglang: the generation ended before step {first + steps + 1:,}; it gave "
                f"{made['meta']['completion_tokens']:,} tokens: ask for earlier steps"
            )
        notes = self._left(name, "count the steps")
        failed = next((note["problem"] for note in notes if note["problem"]), "")
        if failed:
            raise BubblescopeError(f"target sglang: {failed}")
        return notes[0], made
