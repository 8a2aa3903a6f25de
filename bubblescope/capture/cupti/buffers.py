"""Activity buffers: where CUPTI puts its records, and what comes back of them.

cupti-python makes objects of a buffer's records when the buffer is full or flushed, on a thread
of CUPTI's that needs the interpreter. That must not fall into a window, so buffers are large; and
where it does, the stretch is kept and goes into the recording as the profiler's own time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

BUFFER_BYTES = 16 << 20
"""About 65,000 kernel records. The first request falls into the lead-in: it takes milliseconds."""


class Buffers:
    """Hands out buffers of `size` bytes and keeps the records that come back.

    full: called once, on CUPTI's thread, when `limit` records have come back. After that no
    buffer is handed out, and CUPTI counts what it drops.
    """

    def __init__(
        self,
        size: int = BUFFER_BYTES,
        limit: int | None = None,
        full: Callable[[], None] | None = None,
    ) -> None:
        self.size, self._limit, self._full = size, limit, full
        self._batches: list[list[Any]] = []
        self._stretches: list[tuple[int, int]] = []
        self.count = 0

    def requested(self) -> tuple[int, int]:
        """CUPTI's question for a buffer: bytes, and most records (0: as many as fit)."""
        if self._limit is not None and self.count >= self._limit:
            return 0, 0
        return self.size, 0

    def completed(self, records: list[Any]) -> None:
        """CUPTI's answer: the records of a buffer."""
        self._batches.append(records)
        self.count += len(records)
        self._stretches.append((time.time_ns(), len(records)))
        if self._limit is not None and self.count >= self._limit and self._full is not None:
            full, self._full = self._full, None
            full()

    def clear(self) -> None:
        """Forget everything that has come back."""
        self._batches, self._stretches, self.count = [], [], 0

    def take(self) -> list[Any]:
        """All records in the order in which they came back; they are forgotten here."""
        records = [record for batch in self._batches for record in batch]
        self._batches = []
        return records

    def completions(self) -> list[tuple[int, int]]:
        """When each buffer came back (ns), and how many records it held."""
        return list(self._stretches)
