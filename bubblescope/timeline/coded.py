"""Dictionary-coded strings: one small integer a row, each distinct string kept once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column of strings.

    `codes` is int32, shape (rows,), each an index into `values`. Two columns are equal when
    they read the same, row by row, whatever the order of their dictionaries.
    """

    codes: npt.NDArray[np.int32]
    values: tuple[str, ...]

    @classmethod
    def of(cls, strings: Iterable[str]) -> Coded:
        """Code strings in order of first appearance."""
        seen: dict[str, int] = {}
        codes = [seen.setdefault(s, len(seen)) for s in strings]
        return cls(np.asarray(codes, np.int32), tuple(seen))

    @classmethod
    def constant(cls, value: str, rows: int) -> Coded:
        """The same string in every row."""
        return cls(np.zeros(rows, np.int32), (value,))

    @classmethod
    def concat(cls, parts: Sequence[Coded]) -> Coded:
        """Rows of all parts, one after the other, under one dictionary."""
        seen: dict[str, int] = {}
        codes = [part.recoded(seen) for part in parts]
        return cls(np.concatenate(codes) if codes else np.zeros(0, np.int32), tuple(seen))

    @classmethod
    def from_arrow(cls, column: pa.ChunkedArray) -> Coded:
        """From an Arrow string or dictionary column without nulls."""
        array = column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # no rows: nothing to combine
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        codes = np.asarray(array.indices.to_numpy(zero_copy_only=False), np.int32)
        return cls(codes, tuple(array.dictionary.to_pylist()))

    def to_arrow(self) -> pa.DictionaryArray:
        """As an Arrow dictionary array."""
        return pa.DictionaryArray.from_arrays(
            pa.array(self.codes, pa.int32()), pa.array(self.values, pa.string())
        )

    def recoded(self, seen: dict[str, int]) -> npt.NDArray[np.int32]:
        """Codes of the same rows under the dictionary `seen`, which grows as needed."""
        table = np.fromiter((seen.setdefault(v, len(seen)) for v in self.values), np.int32)
        return table[self.codes] if len(table) else self.codes.copy()

    def take(self, rows: npt.NDArray[Any] | slice) -> Coded:
        """The chosen rows (indices, mask or slice), under the same dictionary."""
        return Coded(self.codes[rows], self.values)

    def where(self, predicate: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Mask of the rows whose string satisfies `predicate`, called once a distinct string."""
        table = np.fromiter((predicate(v) for v in self.values), np.bool_, len(self.values))
        return table[self.codes] if len(table) else np.zeros(len(self.codes), np.bool_)

    def map(self, function: Callable[[str], str]) -> Coded:
        """`function` of every string, called once a distinct string; equal results share a code."""
        seen: dict[str, int] = {}
        table = np.fromiter(
            (seen.setdefault(function(v), len(seen)) for v in self.values), np.int32
        )
        return Coded(table[self.codes] if len(table) else self.codes.copy(), tuple(seen))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        return self.values[int(self.codes[row])]

    def to_list(self) -> list[str]:
        """Every row as a string."""
        return [self.values[c] for c in self.codes.tolist()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Coded):
            return NotImplemented
        if len(self) != len(other):
            return False
        seen: dict[str, int] = {}
        return bool(np.array_equal(self.recoded(seen), other.recoded(seen)))

    __hash__ = None  # type: ignore[assignment]
