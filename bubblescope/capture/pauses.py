"""Garbage collections, which stop every Python thread while they last."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any


class Pauses:
    """Collects [start, end) of each collection in ns, with its thread, while open."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, int, int]] = []
        self._began = 0

    def open(self) -> None:
        """Watch the collector."""
        gc.callbacks.append(self._called)

    def close(self) -> None:
        """Leave it alone again."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = time.time_ns()
        elif self._began:
            name = f"garbage collection (generation {info['generation']})"
            row = (threading.get_native_id(), name, self._began, time.time_ns())
            self.rows.append(row)
