"""The passes that there are, which findings each addresses, and how several are put on at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from bubblescope.errors import BubblescopeError
from optimizations import unlisted
from optimizations.bf16_gate import Bf16Gate
from optimizations.bf16_heads import Bf16Heads
from optimizations.bf16_lm_head import Bf16LmHead
from optimizations.draft_extend_graph import DraftExtendGraph
from optimizations.glue_graph import GlueGraph
from optimizations.passes import Addresses, PassEntry
from optimizations.pdl_chain import PdlChain
from optimizations.replay_ssm import ReplaySsm
from optimizations.router_moe import RouterMoe
from optimizations.seq_len_sync import SeqLenSync
from optimizations.staged_kda import StagedKda
from optimizations.verify_attention import VerifyAttention

__all__ = ["PASSES", "Addresses", "PassEntry", "applied", "get", "passes_for"]

PASSES: list[PassEntry] = [
    SeqLenSync(),
    DraftExtendGraph(),
    PdlChain(),
    RouterMoe(),
    Bf16Heads(),
    Bf16Gate(),
    Bf16LmHead(),
    StagedKda(),
    GlueGraph(),
    VerifyAttention(),
    ReplaySsm(),
]
"""Every pass, in the order in which reports name them."""


def passes_for(kind: str, call: str, file: str = "") -> tuple[str, ...]:
    """Names of the passes that address a finding; file: of its site, "" where not known."""
    return tuple(p.name for p in PASSES if any(a.fits(kind, call, file) for a in p.addresses))


def get(name: str) -> PassEntry:
    """The pass of that name; "package.module:Class" is one that is not listed.

    Raises:
        BubblescopeError: there is none.
    """
    for entry in PASSES:
        if entry.name == name:
            return entry
    if ":" in name:
        return unlisted.load(name)
    known = ", ".join(p.name for p in PASSES) or "none"
    raise BubblescopeError(f"no pass {name!r}; there are: {known}")


def check(entry: PassEntry, target: str) -> None:
    """Raise where a pass cannot be put on the target of that name.

    Raises:
        BubblescopeError: it was not made for it.
    """
    if target not in entry.targets:
        raise BubblescopeError(
            f"pass {entry.name}: not made for target {target}, "
            f"only for {', '.join(entry.targets) or 'none'}"
        )


@contextmanager
def applied(names: Sequence[str], target: Any) -> Iterator[None]:
    """Put passes on a target until this exits; each once, in the order given.

    Raises:
        BubblescopeError: no such pass, or it cannot be put on this target.
    """
    chosen = [get(name) for name in dict.fromkeys(names)]
    for entry in chosen:
        check(entry, target.name)
    with ExitStack() as stack:
        for entry in chosen:
            stack.enter_context(entry.applied(target))
        yield
