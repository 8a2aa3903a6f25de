"""A SQLite file as columns of integers; never written to, and nothing is written beside it."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path

import numpy as np

from bubblescope.ingest.codes import Codes
from bubblescope.ingest.source import Source, refusal
from bubblescope.timeline import Coded
from bubblescope.timeline.tables import Int

MAGIC = b"SQLite format 3\0"
NULL = np.iinfo(np.int64).min
"""Stands in a column of integers for NULL, and for all of a column that the table lacks."""

_AGAIN = "copy it again whole, or export it again"
_HEAD = 100
"""Bytes of the header of every SQLite file."""

# Changes that are in a journal and not yet in the file itself.
_JOURNALS = ("-wal", "-journal")


class Database:
    """Tables and columns by name, whatever the case of its letters; any of them may be missing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        named = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self._tables = {name.lower(): name for (name,) in named}
        self._columns: dict[str, dict[str, str]] = {}

    @property
    def tables(self) -> tuple[str, ...]:
        """Every table's name, in the order in which they were made."""
        return tuple(self._tables.values())

    def __contains__(self, table: str) -> bool:
        return table.lower() in self._tables

    def columns(self, table: str) -> dict[str, str]:
        """The columns of a table, by their names in lower case; none where there is no table."""
        if table not in self._columns:
            self._columns[table] = {}
            if table in self:
                rows = self._connection.execute(f"PRAGMA table_info({self._table(table)})")
                self._columns[table] = {str(row[1]).lower(): str(row[1]) for row in rows}
        return self._columns[table]

    def count(self, table: str) -> int:
        """How many rows a table has; 0 where there is no table."""
        if table not in self:
            return 0
        rows = self._connection.execute(f"SELECT count(*) FROM {self._table(table)}").fetchone()
        return int(rows[0])

    def integers(self, table: str, *names: str) -> tuple[Int, ...]:
        """Columns of a table, each shape (rows,), all in one order of rows.

        NULL and every row of a column that is not there are NULL, what is no number is cast as
        SQLite casts it. "a|b" is column a where the table has it, else column b.
        """
        found = [self._column(table, name) for name in names]
        there = [column for column in found if column]
        if not there:
            return tuple(np.full(self.count(table), NULL, np.int64) for _ in names)
        values = ", ".join(f"CAST(ifnull({c}, {NULL}) AS INTEGER)" for c in there)
        rows = self._connection.execute(f"SELECT {values} FROM {self._table(table)}")
        flat = np.fromiter(chain.from_iterable(rows), np.int64)
        columns = iter(np.ascontiguousarray(flat.reshape(-1, len(there)).T))
        length = len(flat) // len(there)
        return tuple(next(columns) if c else np.full(length, NULL, np.int64) for c in found)

    def texts(self, table: str, name: str) -> Coded:
        """A column of texts, shape (rows,), in the order of `integers`; "" for NULL."""
        column = self._column(table, name)
        if not column:
            return Coded.constant("", self.count(table))
        query = f"SELECT ifnull(CAST({column} AS TEXT), '') FROM {self._table(table)}"
        codes = Codes()
        rows = codes.column([text for (text,) in self._connection.execute(query)])
        return Coded(rows, tuple(codes))

    def _table(self, table: str) -> str:
        return _quoted(self._tables[table.lower()])

    def _column(self, table: str, name: str) -> str:
        """The column in quotes, under the first of its names that the table has; else ""."""
        have = self.columns(table)
        return next((_quoted(have[n.lower()]) for n in name.split("|") if n.lower() in have), "")


@contextmanager
def opened(source: Source) -> Iterator[Database]:
    """The database in a file; `BubblescopeError` where it is damaged, at once or on the way."""
    try:
        with _at_rest(source) as path:
            _whole(source.path, path)
            uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                yield Database(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # SQLite's own message may quote bytes that are no text.
        why = error if isinstance(error, sqlite3.Error) else "malformed names"
        raise refusal(source.path, f"damaged SQLite file ({why})", _AGAIN) from None


def _whole(path: Path, at_rest: Path) -> None:
    """Refuse a file that ends early: SQLite would read zeros where its end is missing."""
    with at_rest.open("rb") as file:
        head = file.read(_HEAD)
    size, pages = at_rest.stat().st_size, int.from_bytes(head[28:32], "big")
    page = int.from_bytes(head[16:18], "big")
    stated = (65_536 if page == 1 else page) * pages
    # Older libraries leave the number of pages as it was, and another number says so.
    if head[24:28] == head[92:96] and size < stated:
        raise refusal(path, f"cut short: {size:,} of {stated:,} bytes", _AGAIN)


@contextmanager
def _at_rest(source: Source) -> Iterator[Path]:
    """A path with all of the content in one file that nobody changes.

    That is the file itself, which SQLite then reads without locks or files of its own. Only where
    it is packed, or has a journal that would have to be played in, it is a copy of it.
    """
    path = source.path
    journals = [path.with_name(path.name + ending) for ending in _JOURNALS]
    journals = [j for j in journals if j.is_file() and j.stat().st_size]
    if not source.packed and not journals:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="bubblescope-") as folder:
        copy = Path(folder) / "copy.sqlite"
        if source.packed:
            content, cut = source.read(lambda _share: None)
            if cut:
                raise refusal(path, f"cut short: {cut}", _AGAIN)
            copy.write_bytes(content)
        else:
            _copied(path, copy, journals)
        yield copy


def _copied(path: Path, copy: Path, journals: Sequence[Path]) -> None:
    try:
        shutil.copyfile(path, copy)
        for journal in journals:
            shutil.copyfile(journal, copy.with_name(copy.name + journal.name[len(path.name) :]))
    except OSError as error:
        raise refusal(path, f"cannot be copied ({error.strerror})", "make room for it") from None
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
