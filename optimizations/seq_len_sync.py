"""Pass seq-len-sync: the host plans a step without reading the sequence length back."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optimizations.passes import Addresses, PassEntry


@dataclass(frozen=True, slots=True)
class SeqLenSync(PassEntry):
    """As SGLang did for this model in its pull request 32219.

    Positions and cache slots are made on the device, from the length that is there already. The
    host keeps an upper bound of the length for the pages that it gives out.
    """

    name: str = "seq-len-sync"
    summary: str = "Keeps the sequence length on the device: no blocking read before each step."
    addresses: tuple[Addresses, ...] = (
        Addresses("blocking read", r"^cpuStreamSynchronize$"),
        Addresses(
            "blocking read",
            r"^cudaStreamSynchronize$",
            r"(targets[/\\]ling[/\\]scheduler|sglang[/\\].*[/\\]overlap_utils)\.py$",
        ),
    )
    targets: tuple[str, ...] = ("ling", "sglang")
    gate: str = "256 greedy tokens equal with the pass on and off"
    live: bool = True
    models: tuple[str, ...] = (
        # The function of the embedded loop, SGLang's file, and SGLang recorded without stacks.
        "read:_read_length|overlap_utils.py|cudaStreamSynchronize in scheduler.run_batch",
    )

    def applied(self, target: Any) -> AbstractContextManager[None]:
        """The hook is `length_stays_on_device`, a Switch of the target."""
        on: AbstractContextManager[None] = target.length_stays_on_device.on()
        return on
