"""The target `ling`: the embedded loop, on a CUDA device or on the CPU stream thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from bubblescope.capture.backend import Backend
from bubblescope.errors import BubblescopeError
from bubblescope.targets.gated import Gated
from bubblescope.targets.ling import accept, checkpoint, config_file
from bubblescope.targets.ling.config import Config
from bubblescope.targets.ling.cuda import Cuda, EagerCuda
from bubblescope.targets.ling.floor import step_bytes
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.moe import Moe
from bubblescope.targets.ling.parts import Parts
from bubblescope.targets.ling.recorder import StreamThreadBackend
from bubblescope.targets.ling.scheduler import Scheduler
from bubblescope.targets.ling.stream_thread import StreamThread
from bubblescope.targets.ling.weights import Unset, Weights, Widened
from bubblescope.targets.target import Switch

_NO_KERNELS = "target ling: the CPU stream thread runs torch's operations only, no Triton kernels"


class Ling:
    """The embedded loop.

    Args:
        device: "cuda" or "cpu"; where None, CUDA if torch has it.
        config: the model's shapes; where None, tiny on the CPU and a TP4 rank's on CUDA (63 GB).
        seed: of weights and acceptance.
        accept_length: mean tokens a step, by simulated acceptance; where None, 2.5 with 3 drafts
            and 3.25 with 5; 0: the drafts must be right.
        layers: the last so many only; all where None.
        graphs: on CUDA, False launches each stage operation by operation.
        model: directory of a checkpoint, with config.json and safetensors; where None, random.
        tp: of a checkpoint: the first of so many tensor-parallel ranks, without all-reduce.
    """

    name = "ling"
    _branch = 1.0
    """See `Weights`."""

    def __init__(
        self,
        device: Literal["cuda", "cpu"] | None = None,
        config: Config | None = None,
        seed: int = 0,
        accept_length: float | None = None,
        layers: int | None = None,
        graphs: bool = True,
        model: str | None = None,
        tp: int | None = None,
    ) -> None:
        self._cuda = torch.cuda.is_available() if device is None else device == "cuda"
        self._model, self._ranks = Path(model) if model is not None else None, tp or 1
        if self._model is not None:
            if layers is not None:
                raise BubblescopeError("target ling: a checkpoint runs with all its layers")
            config = config or _of(self._model, self._ranks)
        elif tp is not None:
            raise BubblescopeError(
                "target ling: --tp is for a --model; without one it runs the slice of one of 4 "
                "ranks on CUDA, else a tiny model"
            )
        self.config = config or (Config.tp4_rank() if self._cuda else Config.tiny())
        if layers is not None:
            self.config = self.config.with_layers(layers)
        if accept_length is None:
            accept_length = 3.25 if self.config.drafts > 3 else 2.5
        if not (graphs or self._cuda):
            raise BubblescopeError("target ling: the CPU stream thread runs graphs only")
        self._seed, self._accept_length, self._graphs = seed, accept_length, graphs
        self.length_stays_on_device = Switch()
        self.parts = Parts(None if self._cuda else _NO_KERNELS)
        self._device: StreamThread | Cuda | None = None
        self._scheduler: Scheduler | None = None
        self._loop: Loop | None = None
        self.tokens: list[int] = []

    def about(self) -> dict[str, str]:
        """What a report must say of it."""
        c = self.config
        kda = sum(not c.is_mla(n) for n in range(c.layers))
        drawn = f"random, seed {self._seed}" if self._model is None else f"of {self._model}"
        said = {
            "model": f"{c.name}: {kda} KDA and {c.layers - kda} MLA layers, {c.experts} experts, "
            f"MTP with {c.drafts} drafts",
            "shard": c.shard,
            "weights": f"{drawn}, {'bf16' if self._cuda else 'fp32'}",
            "acceptance": "the model's own, greedy"
            if not self._accept_length
            else f"simulated acceptance, {self._accept_length:g} tokens a step in the mean, "
            f"seed {self._seed}",
        }
        if not self._cuda:
            said["device"] = StreamThread.name
        if self._loop is not None:
            routed = [x.feed for x in self._loop.model.layers if isinstance(x.feed, Moe)]
            seen = [len(m.chosen.unique()) for m in routed if m.chosen is not None]
            distinct = sum(seen) / max(len(seen), 1)
            said["routing"] = f"{distinct:.1f} distinct experts a layer in the last step's verify"
        return said

    def start(self) -> None:
        """Make the weights, start the device and capture each stage as a graph."""
        if self._device is not None:
            raise BubblescopeError("target ling: runs already; stop it before starting it again")
        c = self.config
        device = self._new_device()
        try:
            schedule, at = None, device.torch_device
            if self._accept_length:
                schedule = accept.schedule(self._accept_length, c.drafts, self._seed, at)
            loop = self._new_loop(Weights, schedule)
            scheduler = Scheduler(device, loop, self.length_stays_on_device, self.parts)
        except BaseException:
            device.close()
            raise
        self._device, self._loop, self._scheduler = device, loop, scheduler
        self.tokens = scheduler.tokens

    def _new_device(self) -> StreamThread | Cuda:
        if not self._cuda:
            return StreamThread()
        return Cuda() if self._graphs else EagerCuda()

    def _new_loop(self, weights: type[Weights], schedule: torch.Tensor | None) -> Loop:
        """A loop with weights of that kind; those of a checkpoint are not scaled for the gates."""
        at = "cuda" if self._cuda else "cpu"
        if self._model is None:
            made = weights(self._seed, at, self._dtype, self._branch)
            return Loop(self.config, made, schedule)
        dtype = torch.float32 if weights is Widened else self._dtype
        loop = Loop(self.config, Unset(self._seed, at, dtype), schedule)
        checkpoint.load(loop, self._model, self._ranks)
        return loop

    @property
    def _dtype(self) -> torch.dtype:
        return torch.bfloat16 if self._cuda else torch.float32

    def step(self) -> None:
        """One decode step: it is launched, and the one before it is done when this returns."""
        if self._scheduler is None:
            raise BubblescopeError("target ling: is not started")
        self._scheduler.step()

    def finish(self) -> None:
        """Wait for all steps; `tokens` then holds all that they gave."""
        if self._scheduler is not None:
            self._scheduler.finish()

    def rewind(self) -> None:
        """Wait for all steps; those that follow are the same as after `start`."""
        if self._scheduler is None:
            raise BubblescopeError("target ling: is not started")
        self._scheduler.rewind()

    def floor_bytes(self) -> int | None:
        """Bytes that a step must read; None on the CPU, where caches hold the tiny model."""
        if self._loop is None:
            raise BubblescopeError("target ling: is not started")
        self.finish()
        return step_bytes(self._loop) if self._cuda else None

    def stop(self) -> None:
        """Finish and give everything back; `tokens` stays."""
        if self._device is not None:
            device = self._device
            try:
                self.finish()
            finally:
                self._device = self._loop = self._scheduler = None
                device.close()

    def gated(self) -> Gated:
        """The same loop for the gates: drafts are replayed, and the model itself accepts them."""
        from bubblescope.targets.ling.gated import GatedLing

        at: Literal["cuda", "cpu"] = "cuda" if self._cuda else "cpu"
        config = replace(self.config, last_token=-1)  # a run is one sequence
        return GatedLing(
            at,
            config,
            self._seed,
            accept_length=0,
            graphs=self._graphs,
            model=None if self._model is None else str(self._model),
            tp=None if self._model is None else self._ranks,
        )

    def backends(self) -> Sequence[Backend]:
        """On the CPU, the device's own records; on CUDA, CUPTI at graph and node level.

        One that has `prepare` sees only graphs captured after that: call it before `start`.
        """
        if not self._cuda:
            return [StreamThreadBackend(self._stream_thread)]
        from bubblescope.capture.cupti.backend import CuptiBackend

        return [CuptiBackend("graph"), CuptiBackend("node")]

    def _stream_thread(self) -> StreamThread:
        if not isinstance(self._device, StreamThread):
            raise BubblescopeError("target ling: is not started, so there is nothing to record")
        return self._device


def _of(directory: Path, ranks: int) -> Config:
    whole = config_file.read(directory)
    return whole if ranks == 1 else whole.of_rank(ranks)
