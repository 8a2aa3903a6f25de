"""Passes made wrong on purpose, for the tests of the gates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from optimizations.passes import PassEntry


@dataclass(frozen=True, slots=True)
class Injected(PassEntry):
    """A pass of the target ling."""

    name: str = "injected"
    summary: str = "Made for a test."
    addresses: tuple[Any, ...] = ()
    targets: tuple[str, ...] = ("ling",)

    def applied(self, target: Any) -> AbstractContextManager[None]:
        return self.changed()

    @contextmanager
    def changed(self) -> Iterator[None]:
        """Nothing."""
        yield


@dataclass(frozen=True, slots=True)
class Around(Injected):
    """Replaces one method of a class while it is on."""

    def method(self) -> tuple[type, str]:
        raise NotImplementedError

    def instead(self, original: Any, this: Any, *args: Any) -> Any:
        raise NotImplementedError

    @contextmanager
    def changed(self) -> Iterator[None]:
        owner, name = self.method()
        original = getattr(owner, name)

        def replaced(this: Any, *args: Any) -> Any:
            return self.instead(original, this, *args)

        with patch.object(owner, name, replaced):
            yield


@dataclass(frozen=True, slots=True)
class DropsAToken(Around):
    """Hands out every token but number 40."""

    def method(self) -> tuple[type, str]:
        from bubblescope.targets.ling.scheduler import Scheduler

        return Scheduler, "_take_results"

    def instead(self, original: Any, this: Any, *args: Any) -> Any:
        output = this._request.output
        before = len(output)
        original(this)
        if before <= 40 < len(output):
            del this.tokens[40]


@dataclass(frozen=True, slots=True)
class KeepsARejectedToken(Around):
    """Where some drafts were rejected, the KDA state takes up a trace of the first of them."""

    share: float = 1e-4

    def method(self) -> tuple[type, str]:
        from bubblescope.targets.ling.kda import Kda

        return Kda, "commit"

    def instead(self, original: Any, this: Any, *args: Any) -> Any:
        (accepted,) = args
        original(this, accepted)
        last = this.staged_state.shape[0] - 1
        rejected = this.staged_state.index_select(0, (accepted + 1).clamp(max=last)).squeeze(0)
        this.state.copy_(this.state.lerp(rejected, self.share * (accepted < last).float()))


@dataclass(frozen=True, slots=True)
class WaitsNotLongEnough(Around):
    """Reads the length after a while that is enough for a step, and mostly is."""

    patience_s: float = 0.1

    def method(self) -> tuple[type, str]:
        from bubblescope.targets.ling.scheduler import Scheduler

        return Scheduler, "_read_length"

    def instead(self, original: Any, this: Any, *args: Any) -> Any:
        this._device.copy(this._length, this._loop.length, "DtoH")
        reached = this._device.record()
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline and not happened(reached):
            time.sleep(2e-4)
        return int(this._length)


def happened(event: Any) -> bool:
    """Whether an event of the CPU stream thread or of CUDA has happened."""
    return bool(event.query() if hasattr(event, "query") else not event._closed.locked())


@dataclass(frozen=True, slots=True)
class AcceptsLess(Around):
    """Gives the same tokens with fewer of the drafts that were right: one a step at most."""

    def method(self) -> tuple[type, str]:
        from bubblescope.targets.ling.loop import Loop

        return Loop, "verify"

    def instead(self, original: Any, this: Any, *args: Any) -> Any:
        original(this)
        this.accepted.clamp_(max=1)
        this.result[-1:].copy_(this.accepted)


@dataclass(frozen=True, slots=True)
class Breaks(Around):
    """Ends in an error at its first step."""

    def method(self) -> tuple[type, str]:
        from bubblescope.targets.ling.scheduler import Scheduler

        return Scheduler, "step"

    def instead(self, original: Any, this: Any, *args: Any) -> Any:
        raise ValueError("no such kernel\nin detail")


@dataclass(frozen=True, slots=True)
class RoundsTheHead(Around):
    """Gives the logits in bf16."""

    keeps_bits: bool = False

    def method(self) -> tuple[type, str]:
        from bubblescope.targets.ling.model import Model

        return Model, "logits"

    def instead(self, original: Any, this: Any, *args: Any) -> Any:
        return original(this, *args).bfloat16().float()


@dataclass(frozen=True, slots=True)
class RoutesElsewhere(Around):
    """Declared to round, but each token goes to the experts that fit it least."""

    keeps_bits: bool = False

    def method(self) -> tuple[type, str]:
        from bubblescope.targets.ling.moe import Moe

        return Moe, "route"

    def instead(self, original: Any, this: Any, *args: Any) -> Any:
        (x,) = args
        return original(this, -x)
