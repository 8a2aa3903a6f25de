"""Blocking reads: one that is not made, one that does not wait."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from bubblescope.diagnose import sites
from bubblescope.diagnose.sites import Place
from bubblescope.predict.edit import Edit
from bubblescope.predict.graph import Graph
from bubblescope.predict.hostedit import remove_calls
from bubblescope.predict.whatifs.base import matcher, nothing_fits
from bubblescope.timeline.tables import Int


@dataclass(frozen=True, slots=True)
class WithoutRead:
    """The blocking reads of a place are not made: no wait, no call, no copy, none of its ops.

    pattern: "FILE:LINE" or "FILE" of the site or its function's name; or the call's or an op's name
    as reports print it. Several can be given with `|` between.
    """

    pattern: str

    @property
    def text(self) -> str:
        """As it is written."""
        return f"read:{self.pattern}"

    def apply(self, graph: Graph, edit: Edit) -> tuple[str, ...]:
        """Take the reads out."""
        remove_reads(graph, edit, reads_at(graph, self.pattern, self.text))
        return ()


@dataclass(frozen=True, slots=True)
class WithoutWait:
    """The blocking reads of a place are made, but return without waiting.

    pattern: as of WithoutRead.
    """

    pattern: str

    @property
    def text(self) -> str:
        """As it is written."""
        return f"wait:{self.pattern}"

    def apply(self, graph: Graph, edit: Edit) -> tuple[str, ...]:
        """Take the waits out, and leave the calls."""
        reads = reads_at(graph, self.pattern, self.text)
        edit.waits[np.isin(graph.waits.read, reads)] = False
        return ()


def remove_reads(graph: Graph, edit: Edit, rows: Int) -> None:
    """Take reads (rows of the graph's reads table) out, with their copies."""
    reads = graph.reads
    copies = reads.copy[rows]
    # The copy before a synchronise may be a read itself, of a place that is not meant.
    copies = copies[~np.isin(copies, np.delete(reads.first, rows))]
    remove_calls(
        graph,
        edit,
        np.concatenate([reads.first[rows], reads.last[rows], copies[copies >= 0]]),
    )


def reads_at(graph: Graph, pattern: str, text: str) -> Int:
    """Rows of the reads table whose place fits the pattern.

    Raises:
        BubblescopeError: none does.
    """
    places = sites.places(graph.timeline, graph.reads, graph.threads)
    chosen = [place for place in places if _fits(place, pattern)]
    if not chosen:
        raise nothing_fits(text, "blocking read", [name for p in places for name in names(p)])
    return np.sort(np.concatenate([place.rows for place in chosen]))


def names(place: Place) -> tuple[str, ...]:
    """What a place can be called, as a pattern would: its line first, else call and op."""
    if place.site is not None:
        return (f"{place.site.file}:{place.site.line}",)
    return (f"{place.name} in {place.under}" if place.under else place.name,)


def _fits(place: Place, pattern: str) -> bool:
    return any(_is(place, part) for part in pattern.split("|") if part)


def _is(place: Place, pattern: str) -> bool:
    """Whether the pattern names the place: its line, file, function, call or an op around it."""
    fits = matcher(pattern)
    if any(name == pattern for name in place.within):
        return True
    if place.site is None:
        return fits(f"{place.name} in {place.under}" if place.under else place.name)
    # A line is all of its digits: "a.py:63" is not "a.py:639".
    where = f"{place.site.file}:{place.site.line}"
    wanted = re.compile(".*".join(re.escape(part) for part in pattern.split("*")) + "$")
    return bool(
        wanted.search(where)
        or fits(place.site.file)
        or place.site.function.rpartition(".")[2] == pattern
        or fits(f"{place.name} at ")
    )
