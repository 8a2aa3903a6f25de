"""What `bubblescope passes` prints: every pass, what it does, where, and what it needs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console

from bubblescope.report.page import Page
from bubblescope.report.words import clean
from optimizations.passes import Addresses, PassEntry

VERSION = 1
_LABELS = 11


class AddressesJson(msgspec.Struct, frozen=True):
    """A kind of finding, and a pattern that its call's name matches; "" for any."""

    kind: str
    call: str


class PassJson(msgspec.Struct, frozen=True):
    """One pass."""

    name: str
    summary: str
    targets: list[str]
    needs: list[str]
    keeps_bits: bool
    rounds_on: list[str]
    parts: list[str]
    gate: str
    addresses: list[AddressesJson]


class PassesJson(msgspec.Struct, frozen=True):
    """All passes: docs/doctor.md says what each key means."""

    version: int
    passes: list[PassJson]


def to_json(passes: Sequence[PassEntry]) -> bytes:
    """The passes as UTF-8 JSON, indented, with a newline at its end."""
    told = PassesJson(
        VERSION,
        [
            PassJson(
                p.name,
                p.summary,
                list(p.targets),
                list(p.needs),
                p.keeps_bits,
                list(p.rounds_on),
                list(p.parts),
                p.gate,
                [AddressesJson(a.kind, a.call) for a in p.addresses],
            )
            for p in passes
        ],
    )
    return msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"


def render(passes: Sequence[PassEntry], console: Console) -> None:
    """Print them, in the registry's order."""
    page = Page(console)
    if not passes:
        page.put("no passes: none is written yet")
        return
    for number, entry in enumerate(passes):
        if number:
            page.put()
        page.prose(clean(entry.name), style="bold")
        page.prose(clean(entry.summary), indent=2)
        for label, text in (
            ("targets", ", ".join(entry.targets)),
            ("needs", ", ".join(entry.needs) or "nothing else"),
            ("results", _results(entry)),
            ("gate", entry.gate or "not written yet"),
            ("addresses", "; ".join(map(_finding, entry.addresses)) or "no finding"),
        ):
            page.prose(clean(text), indent=_LABELS + 2, first=f"  {label}")


def _results(entry: PassEntry) -> str:
    if not entry.keeps_bits:
        return "rounded differently"
    rounds = [target for target in entry.targets if target in entry.rounds_on]
    return "the same bits" + (f"; rounded differently on {', '.join(rounds)}" if rounds else "")


def _finding(addresses: Addresses) -> str:
    """As in "blocking read (cudaStreamSynchronize)"."""
    call = addresses.call.strip("^$")
    return f"{addresses.kind} ({call})" if call else addresses.kind
