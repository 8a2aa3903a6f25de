"""A page of text: its width, its glyphs, and lines that fit into it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from bubblescope.report.palette import BUSY, Kind
from bubblescope.report.words import middle

_NARROWEST = 24
_WIDEST = 120  # longer lines are hard to read, and the tables need no more
_GAP = 2
_STUB = 6  # cells of a name that is cut as far as can be
_INDENT = 2  # of tables
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    right: figures. shrink: the width to which its cells may be shortened in their middle before
    any column goes, 0 for never. wrap: cells are broken over lines instead. drop: columns that do
    not fit go, the highest first; 0 stays, and if need be is shortened further.
    """

    head: str = ""
    right: bool = False
    shrink: int = 0
    wrap: bool = False
    drop: int = 0


class Page:
    """Prints lines to a console, none wider than it, whatever its encoding and colours."""

    def __init__(self, console: Console) -> None:
        """A page on that console."""
        self.console = console
        self.width = max(_NARROWEST, min(console.width, _WIDEST))
        ascii_only = console.options.ascii_only
        self.ellipsis = "..." if ascii_only else "…"
        self.dot = "-" if ascii_only else "·"
        self._block = "#" if ascii_only else "█"
        self._eighths = "" if ascii_only else _EIGHTHS
        # 16 colours would make kinds alike: letters tell them apart there, as without colour.
        self.colours = not console.no_color and console.color_system in ("256", "truecolor")

    def put(self, line: Text | str = "", indent: int = 0, *, whole: bool = False) -> None:
        """Print one line, cut at the page's width but for one that must stay `whole`."""
        text = Text(" " * indent).append_text(Text(line) if isinstance(line, str) else line)
        text.rstrip()
        if not whole:
            text.truncate(self.width, overflow="crop")
        # A name may hold what the output cannot encode: a "?" there beats a traceback.
        text.plain = text.plain.encode(self.console.encoding, "replace").decode(
            self.console.encoding, "replace"
        )
        self.console.print(text, soft_wrap=True, highlight=False)

    def prose(self, text: str, *, indent: int = 0, first: str = "", style: str = "") -> None:
        """Print text over as many lines as it needs; `first` stands in the first one's indent."""
        indent = min(indent, self.width // 3)
        for number, line in enumerate(_lines(text, self.width - indent)):
            lead = Text(first.ljust(indent)[:indent] if number == 0 else " " * indent, "dim")
            self.put(lead.append(line, style))

    def heading(self, title: str, note: str = "") -> None:
        """A blank line, then a section's title."""
        self.put()
        if not note or cell_len(title) + _GAP + cell_len(note) <= self.width:
            self.put(Text(title, "bold").append(f"  {note}" if note else "", "not bold dim"))
        else:
            self.put(Text(title, "bold"))
            self.prose(note, indent=_INDENT, style="dim")

    def block(self, kind: Kind) -> Text:
        """One cell of that kind of time."""
        if self.colours:
            return Text(self._block, kind.colour)
        return Text(self._block if kind is BUSY else kind.letter)

    def bar(self, part: int, whole: int, cells: int, kind: Kind) -> Text:
        """A bar as long as part / whole of `cells`; anything above nothing shows."""
        if part <= 0 or whole <= 0:
            return Text()
        part = min(part, whole)
        if not self._eighths:
            return Text("#" * max(1, (2 * part * cells + whole) // (2 * whole)), kind.colour)
        full, rest = divmod(max(1, (16 * part * cells + whole) // (2 * whole)), 8)
        return Text("█" * full + (self._eighths[rest] if rest else ""), kind.colour)

    def table(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Text | str]],
        *,
        below: Sequence[str] = (),
    ) -> None:
        """Print rows under heads. Columns shrink, then go, until the page is wide enough.

        below: a line to put under each row, for what is too long for a column.
        """
        cells = [[c if isinstance(c, Text) else Text(c) for c in row] for row in rows]
        shown, widths = self._fit(columns, cells, self.width - _INDENT)
        if any(columns[c].head for c in shown):
            self._row([Text(column.head, "dim") for column in columns], columns, shown, widths)
        for number, row in enumerate(cells):
            self._row(row, columns, shown, widths)
            if number < len(below) and below[number]:
                self.put(Text(below[number], "dim"), 2 * _INDENT)

    def fits(self, columns: Sequence[Column], rows: Sequence[Sequence[Text | str]]) -> bool:
        """Whether a table needs no column shrunk or left out."""
        cells = [[c if isinstance(c, Text) else Text(c) for c in row] for row in rows]
        shown, widths = self._fit([replace(c, shrink=0, drop=0) for c in columns], cells, 0)
        return sum(widths[c] for c in shown) + _GAP * (len(shown) - 1) <= self.width - _INDENT

    def _row(
        self, row: list[Text], columns: Sequence[Column], shown: list[int], widths: list[int]
    ) -> None:
        """Print one row, on as many lines as its longest cell."""
        wrapped = {c: self._wrapped(row[c], columns[c], widths[c]) for c in shown}
        for number in range(max(len(lines) for lines in wrapped.values())):
            line = Text()
            for c in shown:
                lines = wrapped[c]
                cell = lines[number].copy() if number < len(lines) else Text()
                pad = max(0, widths[c] - cell.cell_len)
                cell.pad_left(pad) if columns[c].right else cell.pad_right(pad)
                line.append_text(cell).append(" " * _GAP)
            self.put(line, _INDENT)

    def _fit(
        self, columns: Sequence[Column], cells: list[list[Text]], room: int
    ) -> tuple[list[int], list[int]]:
        """The columns that are shown, and the width of every column."""
        natural = [
            max([cell_len(column.head), *(row[c].cell_len for row in cells)])
            for c, column in enumerate(columns)
        ]
        # A column in which no row says anything takes no room.
        shown = [c for c in range(len(columns)) if any(row[c].plain for row in cells)] or [0]
        least = [column.shrink for column in columns]
        while True:
            widths = [min(n, room) if s else n for n, s in zip(natural, least, strict=True)]
            excess = sum(widths[c] for c in shown) + _GAP * (len(shown) - 1) - room
            while excess > 0:
                wide = [c for c in shown if 0 < least[c] < widths[c]]
                if not wide:
                    break
                widths[max(wide, key=lambda c: widths[c])] -= 1
                excess -= 1
            last = max(shown, key=lambda c: columns[c].drop)
            if excess <= 0 or (max(least) <= _STUB and not columns[last].drop):
                return shown, widths
            if columns[last].drop:
                shown.remove(last)
            else:
                least = [min(s, _STUB) for s in least]

    def _wrapped(self, cell: Text, column: Column, width: int) -> list[Text]:
        """The lines of one cell."""
        if column.wrap:
            return [Text(line, cell.style) for line in _lines(cell.plain, width)]
        if column.shrink and cell.cell_len > width:
            return [Text(middle(cell.plain, width, self.ellipsis), cell.style)]
        return [cell]


def _lines(text: str, width: int) -> list[str]:
    """The text over lines of at most `width`, never broken between a figure and its unit."""
    joined = re.sub(r"(?<=\d) (?=%|us\b|ms\b|s\b)", "\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(joined, max(1, width), break_on_hyphens=False) or [""]
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
