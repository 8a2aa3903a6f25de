"""What a what-if is, and how its pattern finds names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from bubblescope.errors import BubblescopeError
from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph

_LISTED = 8


class WhatIf(Protocol):
    """One change to a recorded program, that a graph can be edited by."""

    @property
    def text(self) -> str:
        """As it is written: "read:engine.py:12"."""

    def apply(self, graph: Graph, edit: Edit) -> tuple[str, ...]:
        """Change the edit; returns what was assumed that the recording does not say.

        Raises:
            BubblescopeError: nothing in the recording fits.
        """


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name holds the pattern, in which `*` stands for anything."""
    wanted = re.compile(".*".join(re.escape(part) for part in pattern.split("*")))
    return lambda name: wanted.search(name) is not None


def nothing_fits(text: str, noun: str, names: Iterable[str]) -> BubblescopeError:
    """The error for a what-if that fits nothing: it lists what there is."""
    known = list(dict.fromkeys(name for name in names if name))
    have = ", ".join(_short(name) for name in known[:_LISTED])
    more = f" and {len(known) - _LISTED:,} more" if len(known) > _LISTED else ""
    return BubblescopeError(
        f"{text}: no such {noun}; the recording has {have}{more}"
        if known
        else f"{text}: the recording has no {noun}"
    )


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."


def operation_names(graph: Graph) -> list[str]:
    """Names of operations, those that take longest first."""
    ops = graph.timeline.device_ops
    total = np.zeros(len(ops.name.values), np.int64)
    np.add.at(total, ops.name.codes, ops.end - ops.start)
    used = np.unique(ops.name.codes)
    return [ops.name.values[c] for c in used[np.argsort(-total[used], kind="stable")].tolist()]
