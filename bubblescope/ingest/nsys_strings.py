"""The strings of an Nsight Systems export, which its tables refer to by number."""

from __future__ import annotations

import numpy as np

from bubblescope.ingest.codes import coded
from bubblescope.ingest.sqlite import NULL, Database
from bubblescope.timeline import Coded
from bubblescope.timeline.tables import Int


class Strings:
    """StringIds, read once; an empty string is none."""

    def __init__(self, database: Database) -> None:
        (ids,) = database.integers("StringIds", "id")
        values = database.texts("StringIds", "value")
        order = np.argsort(ids, kind="stable")
        order = order[values.where(bool)[order]]
        self._ids = ids[order]
        self._codes = values.codes[order]
        self._values = values.values

    def column(self, ids: Int, otherwise: str = "") -> Coded:
        """The string of each id; `otherwise` where there is no such id."""
        unknown = len(self._values)
        codes = np.full(len(ids), unknown, np.int64)
        if len(self._ids):
            at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            known = (self._ids[at] == ids) & (ids != NULL)
            codes[known] = self._codes[at[known]]
        return coded(codes, (*self._values, otherwise))


def labels(database: Database, table: str) -> dict[int, str]:
    """What the numbers of an ENUM table mean; nothing where the export lacks it."""
    (ids,) = database.integers(table, "id")
    return dict(zip(ids.tolist(), database.texts(table, "label|name").to_list(), strict=True))
