"""The embedded loop set up to be checked: drafts replayed, verified by the model itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from bubblescope.errors import BubblescopeError
from bubblescope.targets.gated import Drafts, NotOffered, PlainRun, ReplayRun, Stress
from bubblescope.targets.ling import plain
from bubblescope.targets.ling.cuda import Cuda
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.oracle import Oracle
from bubblescope.targets.ling.scheduler import Scheduler
from bubblescope.targets.ling.snapshot import draft_state_of, state_of
from bubblescope.targets.ling.stream_thread import StreamThread
from bubblescope.targets.ling.stress import Delays, RestrictedCuda
from bubblescope.targets.ling.target import Ling
from bubblescope.targets.ling.weights import Weights, Widened


class GatedLing(Ling):
    """See `Gated`. Made by `Ling.gated`.

    What each layer adds to the residual stream is scaled by the power of two next to 1 / layers.
    Otherwise rounding that sends a token to other experts in one layer grows from layer to layer,
    and after a few the logits of bf16 have little to do with those of fp32.
    """

    _sms: int | None = None

    @property
    def _branch(self) -> float:  # type: ignore[override]
        return 2.0 ** -round(math.log2(self.config.layers))

    @property
    def drafts(self) -> int:
        """Tokens drafted a step."""
        return self.config.drafts

    @property
    def roundoff(self) -> float:
        """Half the distance of 1 from the next value: 2**-8 in bf16, 2**-24 in fp32."""
        return float(torch.finfo(self._dtype).eps) / 2

    def plain(
        self,
        count: int,
        *,
        along: Sequence[int] | None = None,
        rows: int = 1,
        state_after: int | None = None,
        fp32: bool = False,
    ) -> PlainRun:
        """See `Gated.plain`. It runs on the default stream, with one torch thread on the CPU."""
        if count > self.config.context:
            raise BubblescopeError(
                f"target ling: its caches hold {self.config.context} positions, not {count}"
            )
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        kind = Widened if fp32 and self._cuda else Weights
        try:
            loop = self._new_loop(kind, None)
            loop.model, loop.mtp = self.parts.made(loop, {})
            return plain.run(loop, count, along, rows, state_after)
        except torch.OutOfMemoryError as error:
            if not fp32:
                raise
            reason = str(error).splitlines()[0]
        finally:
            torch.set_num_threads(threads)
            if self._cuda:
                torch.cuda.empty_cache()
        # Not from where it was caught: an error that is kept would keep the weights too.
        raise NotOffered(f"the model does not fit in fp32: {reason}")

    def replay(self, drafts: Drafts, tokens: int, stress: Stress | None = None) -> ReplayRun:
        """See `Gated.replay`. On the CPU stream thread no multiprocessors can be kept away."""
        stress = stress or Stress()
        longest = self.config.request - 2 * self.config.window
        if tokens > longest:
            raise BubblescopeError(
                f"target ling: its requests end too early to check {tokens} tokens; ask for "
                f"{longest} at most"
            )
        if stress.sms is not None and not self._cuda:
            raise NotOffered("the CPU stream thread is one thread, it has no SMs")
        self._sms = stress.sms
        try:
            self.start()
            loop, scheduler = self._loop, self._scheduler
            if self._device is None or loop is None or scheduler is None:
                raise BubblescopeError("target ling: is not started")
            return self._replay(self._device, loop, scheduler, drafts, tokens, stress)
        finally:
            self._sms = None
            self.stop()

    def _replay(
        self,
        device: StreamThread | Cuda,
        loop: Loop,
        scheduler: Scheduler,
        drafts: Drafts,
        tokens: int,
        stress: Stress,
    ) -> ReplayRun:
        oracle = Oracle(loop, drafts, tokens)
        queued = {
            "verify": device.capture("oracle", oracle.draft),
            "commit": device.capture("log", oracle.log),
        }
        delays = Delays(device, stress.delay_ns, stress.seed) if stress.delay_ns else None
        device.replay(device.capture("reset oracle", oracle.reset))  # the captures ran it

        def before_stage(stage: str) -> None:
            if delays is not None:
                delays.before()
            if stage in queued:
                device.replay(queued[stage])

        scheduler.rewind()  # the captures left drafts behind
        scheduler.before_stage = before_stage
        while len(self.tokens) < tokens and scheduler.steps < tokens:
            self.step()
        self.finish()
        return ReplayRun(
            np.array(self.tokens, np.int64),
            oracle.accepted(),
            oracle.experts(),
            state_of(loop) | draft_state_of(loop),
        )

    def _new_device(self) -> StreamThread | Cuda:
        return super()._new_device() if self._sms is None else RestrictedCuda(self._sms)
