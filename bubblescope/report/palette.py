"""One colour a kind of time, the same in the terminal, in HTML and in plots."""

from __future__ import annotations

from dataclasses import dataclass

from bubblescope.diagnose.model import Part


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of time: its name in tables, its colour as #RRGGBB, its letter without colour."""

    label: str
    colour: str
    letter: str


BUSY = Kind("busy", "#009E73", "#")

# The first seven are Okabe and Ito's, who chose them for every kind of colour vision. Their set
# has no more that show on black, so the other four were searched for: the largest least distance
# in CIELAB from all others, also as people without red, green or blue cones see them. Greys mean
# that something is not known.
KINDS: dict[str, Kind] = {
    kind.label: kind
    for kind in (
        BUSY,
        Kind(Part.READ_TAIL.label, "#D55E00", "r"),
        Kind(Part.HOST_GAP.label, "#E69F00", "h"),
        Kind(Part.HOST_WAIT.label, "#F0E442", "w"),
        Kind(Part.LAUNCH_CALL.label, "#0072B2", "c"),
        Kind(Part.LAUNCH_LATENCY.label, "#56B4E9", "l"),
        Kind(Part.DEVICE_GAP.label, "#CC79A7", "d"),
        Kind(Part.STREAM_WAIT.label, "#784818", "s"),
        Kind(Part.GRAPH_GAP.label, "#8C3BE0", "g"),
        Kind(Part.UNRESOLVED.label, "#D9D9D9", "u"),
        Kind(Part.UNKNOWN.label, "#5A5A5A", "?"),
    )
}


def kind(label: str) -> Kind:
    """The kind of that name; a name from a newer diagnosis is drawn as unknown, under its name."""
    unknown = KINDS[Part.UNKNOWN.label]
    return KINDS.get(label, Kind(label, unknown.colour, unknown.letter))
