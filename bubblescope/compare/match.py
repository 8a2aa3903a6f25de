"""Which thing of A is which of B."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from bubblescope.compare.model import FindingChange, ReadChange
from bubblescope.diagnose.model import Finding, ReadSite, Site

T = TypeVar("T")


def pairs(
    a: Sequence[T], b: Sequence[T], keys: Sequence[Callable[[T], Hashable | None]]
) -> list[tuple[T | None, T | None]]:
    """Pair the things of A and B, by the first key and what is left by the next.

    A key pairs two only if each is the only one left on its side that has it; a key of None pairs
    nothing. In A's order, then what only B has, in B's.
    """
    partner: dict[int, int] = {}
    for key in keys:
        left = _only(key, a, set(partner))
        right = _only(key, b, set(partner.values()))
        partner |= {left[k]: right[k] for k in left.keys() & right.keys()}
    taken = set(partner.values())
    paired = [(x, b[partner[i]] if i in partner else None) for i, x in enumerate(a)]
    return [*paired, *((None, y) for j, y in enumerate(b) if j not in taken)]


def _only(
    key: Callable[[T], Hashable | None], things: Sequence[T], taken: set[int]
) -> dict[Hashable, int]:
    """Index of each thing that alone has its key, of those not taken."""
    found: dict[Hashable, list[int]] = {}
    for index, thing in enumerate(things):
        value = key(thing)
        if index not in taken and value is not None:
            found.setdefault(value, []).append(index)
    return {value: at[0] for value, at in found.items() if len(at) == 1}


def reads(a: Sequence[ReadSite], b: Sequence[ReadSite]) -> tuple[ReadChange, ...]:
    """Read sites: the same call on the same line, else under the same ranges.

    Where lines moved: in the same function of a file of that name, if one read there is left.
    """
    found = pairs(
        a,
        b,
        [
            lambda r: (r.name, r.site or r.within),
            lambda r: (r.name, r.under) if r.site is None else None,
            lambda r: (r.name, _function(r.site)) if r.site is not None else None,
        ],
    )
    return tuple(ReadChange(x, y) for x, y in found)


def findings(a: Sequence[Finding], b: Sequence[Finding]) -> tuple[FindingChange, ...]:
    """Findings: of the same kind, about the same call at the same place."""
    found = pairs(
        a,
        b,
        [
            lambda f: (f.kind, f.call, f.site or f.within, f.ranked),
            lambda f: (f.kind, f.call, _function(f.site)) if f.site is not None else None,
        ],
    )
    return tuple(FindingChange(x, y) for x, y in found)


def _function(site: Site | None) -> Hashable:
    """The file's own name and the function: what stays when lines move."""
    return None if site is None else (re.split(r"[\\/]", site.file)[-1], site.function)
