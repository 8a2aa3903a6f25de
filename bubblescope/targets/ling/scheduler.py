"""The host's side of the loop: pages, plans and results of one request after another.

It launches a step before it takes up the results of the one before, so the device need not wait.
But each step it reads the sequence length back first, to plan positions and cache slots on the
host, as SGLang did for this model before its pull request 32219.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bubblescope.errors import BubblescopeError
from bubblescope.targets.ling.device import Device
from bubblescope.targets.ling.loop import Loop
from bubblescope.targets.ling.model import Model, Mtp
from bubblescope.targets.ling.moe import Moe
from bubblescope.targets.ling.parts import Parts, kept
from bubblescope.targets.ling.snapshot import routed
from bubblescope.targets.target import Switch

STAGES = ("draft", "verify", "commit", "extend")


@dataclass(slots=True)
class Request:
    """One sequence. pages: of the cache, in order of position. length: tokens known of."""

    number: int
    pages: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    length: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """Host memory that a plan is sent from; see Loop."""

    plan: Tensor
    table: Tensor


@dataclass(frozen=True, slots=True)
class _Pending:
    """Results on their way to the host."""

    request: Request
    copied: Any
    buffer: Tensor


@dataclass(frozen=True, slots=True)
class _Variant:
    """The stages captured with parts replaced. chosen: see `Moe.chosen`, of these graphs."""

    names: frozenset[str]
    model: Model
    mtp: Mtp
    graphs: dict[str, Any]
    chosen: list[tuple[Moe, Tensor | None]]


class Scheduler:
    """Runs decode steps of one request at a time.

    length_stays_on_device: the hook of the pass seq-len-sync; parts: of those that replace parts
    of the model. before_stage: called with a stage's name before it is launched. tokens: all that
    were given out.
    """

    def __init__(
        self, device: Device, loop: Loop, keep: Switch, parts: Parts | None = None
    ) -> None:
        self._device, self._loop, self.length_stays_on_device = device, loop, keep
        self._parts = parts or Parts()
        self.before_stage: Callable[[str], None] | None = None
        self.tokens: list[int] = []
        self.steps = 0
        c = loop.config
        self._window = c.window
        # A request is seen to end a step late, and the step after that is planned already.
        if c.context < c.request + 4 * c.window:
            raise BubblescopeError(
                f"target ling: a context of {c.context} positions is too short for requests of "
                f"{c.request} tokens; it takes {c.request + 4 * c.window}"
            )
        # Two of each: a step's are free again when the step after the next is planned.
        self._length = self._host(1)
        self._plans = [_Plan(self._host(2, c.window), self._host(c.context)) for _ in range(2)]
        self._results = [self._host(c.window + 1) for _ in range(2)]
        self._slots = self._host(c.context // c.page, c.page)
        self._slots.copy_(torch.arange(c.context).view(-1, c.page))
        self._pending: deque[_Pending] = deque()
        self._plain = loop.model, loop.mtp
        self._shared: dict[str, Any] = {}
        self._variants: dict[frozenset[str], _Variant] = {}
        self._variant = self._captured()
        device.replay(self._variant.graphs["rewind"])  # the captures ran every stage
        self._begin(Request(0))

    def step(self) -> None:
        """Launch one step, then take up the results of the step before it."""
        self._follow_parts()
        device, turn = self._device, self.steps % 2
        with device.annotate("step"):
            request = self._request
            draft = "draft"
            if self.length_stays_on_device:
                draft = "plan and draft"
                for at, page in self._allocate(request, request.length + 2 * self._window):
                    device.copy(self._loop.table[at : at + len(page)], page, "HtoD")
            else:
                length = self._read_length()
                with device.annotate("plan"):
                    self._allocate(request, length + self._window)
                    self._send_plan(request, length, self._plans[turn])
            for stage in STAGES:
                if self.before_stage is not None:
                    self.before_stage(stage)
                with device.annotate(stage):
                    device.replay(self._variant.graphs[draft if stage == "draft" else stage])
                if stage == "commit":  # results are final: they need not wait for the extend
                    device.copy(self._results[turn], self._loop.result, "DtoH")
                    copied = _Pending(request, device.record(), self._results[turn])
                    self._pending.append(copied)
            self.steps += 1
            if len(self._pending) > 1:
                with device.annotate("results"):
                    self._take_results()

    def _follow_parts(self) -> None:
        """Go on with the parts that are wanted now; the sequence goes on as it is."""
        if self._parts.names == self._variant.names:
            return
        self.finish()
        if self._parts.names not in self._variants:
            buffers = kept(self._loop)
            saved = [buffer.clone() for buffer in buffers]
            self._captured()
            for buffer, values in zip(buffers, saved, strict=True):
                buffer.copy_(values)
            if self._loop.length.is_cuda:
                torch.cuda.synchronize()  # these copies were not in the device's own stream
        self._variant = self._variants[self._parts.names]
        self._loop.model, self._loop.mtp = self._variant.model, self._variant.mtp
        for feed, chosen in self._variant.chosen:
            feed.chosen = chosen

    def _captured(self) -> _Variant:
        """Every stage as a graph, with the parts that are wanted now. The captures run them."""
        device, loop = self._device, self._loop
        loop.model, loop.mtp = self._plain
        loop.model, loop.mtp = self._parts.made(loop, self._shared)
        bodies = {"plan and draft": loop.plan_and_draft, "reset": loop.reset}
        bodies["rewind"] = loop.rewind_schedule
        bodies |= {stage: getattr(loop, stage) for stage in STAGES}
        graphs = {name: device.capture(name, body) for name, body in bodies.items()}
        chosen = [(feed, feed.chosen) for feed in routed(loop)]
        made = _Variant(self._parts.names, loop.model, loop.mtp, graphs, chosen)
        self._variants[made.names] = made
        return made

    def _host(self, *shape: int) -> Tensor:
        """Host memory, int64, that the device can copy from and to while the host goes on."""
        return torch.zeros(shape, dtype=torch.int64, pin_memory=self._device.torch_device != "cpu")

    def finish(self) -> None:
        """Wait for the steps launched, and take up their results."""
        while self._pending:
            self._take_results()
        self._device.synchronize()  # what a step launches after its results

    def rewind(self) -> None:
        """Take up a new request, with simulated acceptance from its beginning.

        Waits for the steps launched. The steps that follow are those that followed the start.
        """
        self._follow_parts()
        self.finish()
        self._device.replay(self._variant.graphs["rewind"])
        self._begin(Request(self._request.number + 1))

    def _read_length(self) -> int:
        """The sequence length, once all steps launched so far are done."""
        self._device.copy(self._length, self._loop.length, "DtoH")
        self._device.synchronize()
        return int(self._length)

    def _allocate(self, request: Request, positions: int) -> list[tuple[int, Tensor]]:
        """Give the request pages for so many positions.

        Returns the first position and the slots of each new page, in host memory.
        """
        size, new = self._loop.config.page, []
        while len(request.pages) * size < min(positions, self._loop.config.context):
            request.pages.append(self._free.popleft())
            new.append(((len(request.pages) - 1) * size, self._slots[request.pages[-1]]))
        return new

    def _send_plan(self, request: Request, length: int, buffers: _Plan) -> None:
        """Positions and slots of this step's tokens, and the slots of all before, from the host."""
        size, loop = self._loop.config.page, self._loop
        table = [page * size + n for page in request.pages for n in range(size)]
        at = list(range(length, length + self._window))
        plan = torch.tensor([at, [table[p] for p in at]])
        for target, values, buffer in (
            (loop.plan, plan, buffers.plan),
            (loop.table[: len(table)], torch.tensor(table), buffers.table[: len(table)]),
        ):
            self._device.copy(target, buffer.copy_(values), "HtoD")

    def _take_results(self) -> None:
        """Append what the oldest pending step gave to its request; begin the next at its end."""
        pending = self._pending.popleft()
        self._device.synchronize_event(pending.copied)
        request = pending.request
        if request is not self._request:
            return  # ended while this step was under way
        *tokens, accepted = pending.buffer.tolist()
        given = tokens[: accepted + 1]
        request.length += len(given)
        request.output += given
        self.tokens += given
        c = self._loop.config
        if c.last_token in given or len(request.output) >= c.request:
            self._begin(Request(request.number + 1))

    def _begin(self, request: Request) -> None:
        """Take up a request with an empty cache; the pages of the last one are free again."""
        c = self._loop.config
        self._free = deque(reversed(range(c.context // c.page)))
        self._request = request
        self._device.replay(self._variant.graphs["reset"])
