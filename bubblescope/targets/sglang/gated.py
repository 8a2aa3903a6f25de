"""The engine set up to be checked: drafts replayed in it, accepted by the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bubblescope.targets.gated import Drafts, NotOffered, PlainRun, ReplayRun, Stress
from bubblescope.targets.sglang.plugin import REPLAYED
from bubblescope.targets.sglang.target import PROMPT, Progress, SGLang

_STATE = "state "
ROOM = 0.45
"""Share of the device's memory for the engine without speculation: the weights and some caches."""


class GatedSGLang(SGLang):
    """See `Gated`. Made by `SGLang.gated`.

    Two engines serve all runs, one without speculation and one with it, which can hold every set of
    switches but those that are decided before the start: for these it is started anew. Neither is
    started before it is asked for. `stop` ends both.
    """

    along_the_reference = True
    """One position at a time is computed by other kernels than six: where two tokens are nearly
    equally likely, rounding decides."""
    _other: GatedSGLang | None = None
    """The engine without speculation."""

    @property
    def drafts(self) -> int:
        """Tokens drafted a step."""
        return self.settings.most_tokens - 1

    @property
    def roundoff(self) -> float:
        """Of bf16."""
        return 2.0**-9

    def plain(
        self,
        count: int,
        *,
        along: Sequence[int] | None = None,
        rows: int = 1,
        state_after: int | None = None,
        fp32: bool = False,
    ) -> PlainRun:
        """See `Gated.plain`; rows: 1, without speculation, or a step's with all drafts right."""
        if fp32:
            raise NotOffered("the engine's weights do not fit in fp32")
        if state_after not in (None, count):
            raise NotOffered("the engine shows the state at the end only")
        known = list(along or ())[:count]
        if rows == 1:
            made = self._plainly()._replayed(count, known=known, right=[], count=count, logits=True)
            return PlainRun(made["said"], made["logits"], None, _state(made))
        if rows != self.drafts + 1 or len(known) < count:
            raise NotOffered(f"the engine runs 1 position at a time or {self.drafts + 1}")
        steps, rest = divmod(count - 1, rows)
        right = [self.drafts] * steps + ([rest - 1] if rest else [])
        # A step looks further than the positions asked for.
        known += [0] * 2 * rows
        made = self._speculating()._replayed(
            count + 2 * rows, known=known, right=right, forced=True, logits=True
        )
        taken = _taken(np.array(right), rows)
        logits = np.concatenate([made["logits"][:1], made["logits"][1:][taken]])
        return PlainRun(np.asarray(logits.argmax(-1)), logits, None, _state(made))

    def replay(self, drafts: Drafts, tokens: int, stress: Stress | None = None) -> ReplayRun:
        """See `Gated.replay`. The engine's process cannot be kept to some multiprocessors."""
        stress = stress or Stress()
        if stress.sms is not None:
            raise NotOffered("SGLang's process cannot be kept to some of the multiprocessors")
        right = [drafts.right[n % len(drafts.right)] for n in range(tokens)]
        given = 1 + np.cumsum(np.array(right) + 1)
        right = right[: int(np.searchsorted(given, tokens)) + 1]
        made = self._speculating()._replayed(
            tokens + 2 * self.settings.most_tokens,
            known=list(drafts.tokens),
            right=right,
            seed=drafts.seed,
            forced=drafts.forced,
            delay_ns=stress.delay_ns,
        )
        accepted = made["accepted"].astype(np.int64)
        said = made["said"][_taken(accepted, self.drafts + 1)]
        return ReplayRun(np.append(made["first"], said), accepted, None, _state(made))

    def start(self, progress: Progress = lambda _stage, _share: None) -> None:
        """Start the engine with speculation, alone: the other one makes way for it.

        If it runs already it stays, unless it was started with other passes.
        """
        if self._other is not None:
            self._other.stop()
        self._start_if_need_be(progress)

    def stop(self) -> None:
        """End both engines."""
        super().stop()
        if self._other is not None:
            self._other.stop()

    def _plainly(self) -> GatedSGLang:
        """The engine without speculation, started. It comes first: it must leave room."""
        if self._wanted():
            raise NotOffered("passes are put on the engine with speculation only")
        if self._other is None:
            made = GatedSGLang(*self._made_with, as_shipped=True)
            made.settings = self.settings.without_speculation(ROOM)
            self._other = made
        self._other._start_if_need_be()
        return self._other

    def _speculating(self) -> GatedSGLang:
        self._start_if_need_be()
        return self

    def _start_if_need_be(self, progress: Progress = lambda _stage, _share: None) -> None:
        """Have an engine that runs, and was started as the passes want it.

        One that ended, whatever with, is none: a pass that breaks it says nothing of the next one.
        """
        if self._link is not None and (self._link.over or self._arguments() != self._started_with):
            SGLang.stop(self)
        if self._link is None:
            SGLang.start(self, progress)

    def _replayed(self, tokens: int, **order: Any) -> dict[str, Any]:
        """One generation under an order; arrays as `replaying` writes them, and "first"."""
        self._prepare(accept_length=0.0)
        link = self._engine()
        self._windows += 1
        name = f"replay{self._windows}"
        missed = [path for path in self._missed if path in REPLAYED]
        if missed:
            raise NotOffered(
                f"SGLang {self._version} has no {', '.join(missed)}, where drafts are replayed"
            )
        parameters = {"name": name, "prompt": PROMPT, **order}
        self._call("bubblescope_replay", parameters, _unseen)
        generated = self._generate(tokens, lambda: None)
        self._call("bubblescope_replayed", {}, _unseen)
        made: dict[str, Any] = {"first": np.int64(generated["ids"][0])}
        for rank in range(self._ranks):
            path = link.folder / f"{name}-{rank}.npz"
            if not path.exists():
                raise link.failed(f"rank {rank} of {self._ranks} left nothing of a replay")
            with np.load(path) as arrays:
                for key in arrays.files:
                    if not rank:
                        made[key] = arrays[key]
                    elif key.startswith(_STATE):
                        made[f"{key}, rank {rank}"] = arrays[key]
            path.unlink()
        return made


def _taken(accepted: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """Whether each position of each step, in order, was taken into the sequence."""
    return (np.arange(width) <= accepted[:, np.newaxis]).reshape(-1)


def _state(made: dict[str, Any]) -> dict[str, Any]:
    return {k.removeprefix(_STATE): v for k, v in made.items() if k.startswith(_STATE)}


def _unseen(_stage: str, _share: float) -> None:
    """Gates say what they are at before each run."""
