"""Inside a traced program: record from now on, write one file, change nothing else."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from bubblescope.capture.assemble import assemble
from bubblescope.capture.cupti import CuptiBackend
from bubblescope.capture.later import DELAY_S
from bubblescope.capture.marks import StepMarks
from bubblescope.timeline import bscope


class Recorder:
    """Records this process until it ends or the limit is reached.

    Its file is written in both cases: a process that is killed after the limit has written its
    file already.
    """

    def __init__(self, plan: dict[str, Any], backend: Any = None) -> None:
        """Prepare; nothing is recorded before `begin`.

        Args:
            plan: folder, level, limit, sites, cupti (the library's path or None), as `command`
                sends them.
            backend: what records, CUPTI where None.
        """
        self._folder, self._process = Path(plan["folder"]), os.getpid()
        self._rank = _number("RANK", 0)
        self._enough = threading.Event()
        self._lock = threading.Lock()
        self._done = False
        cupti = plan.get("cupti")
        self._backend = backend or CuptiBackend(
            plan["level"],
            sites=plan["sites"],
            limit=plan["limit"],
            full=self._enough.set,
            path=Path(cupti) if cupti else None,
            rank=self._rank,
        )

    def begin(self) -> None:
        """Record; a problem is written down for the parent and never reaches the program."""
        try:
            self._backend.start()
        except Exception as error:  # the program must run as it would have
            self._done = True
            self._note(str(error))
            return
        threading.Thread(target=self._watch, name="bubblescope", daemon=True).start()
        atexit.register(self.finish)
        os.register_at_fork(after_in_child=self._forked)
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        ):
            signal.signal(signal.SIGTERM, self._terminated)

    def finish(self, synchronise: bool = True) -> None:
        """Stop and write the file, once."""
        with self._lock:
            if self._done or os.getpid() != self._process:
                return
            self._done = True
            try:
                tables = self._backend.stop(synchronise)
                if not len(tables.device_ops) and not len(tables.host_calls):
                    self._note("")
                    return
                name = " ".join(["python", *sys.argv])
                timeline = assemble(
                    self._backend, tables, StepMarks().table(), name, rank=self._rank
                )
                bscope.write(timeline, self._folder / f"{self._process}.bscope")
            except Exception as error:  # the program must end as it would have
                self._note(f"the recording was lost: {error}")
            finally:
                _keep_interrupt()

    def _watch(self) -> None:
        self._enough.wait()
        # Other threads are at work: one may be capturing a graph, which a synchronise would break.
        self.finish(synchronise=False)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        in_callback = getattr(self._backend, "in_callback", None)
        if in_callback is not None and in_callback(frame):
            again = threading.Timer(DELAY_S, signal.raise_signal, [number])
            again.daemon = True
            again.start()
            return
        self.finish()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _forked(self) -> None:
        """A forked child does not record: CUPTI does not survive a fork."""
        self._done = True

    def _note(self, problem: str) -> None:
        note = {"process": self._process, "problem": problem}
        path = self._folder / f"{self._process}.json"
        path.write_text(json.dumps(note), encoding="utf-8")


def begin(plan: dict[str, Any]) -> None:
    """Called by the injected sitecustomize."""
    Recorder(plan).begin()


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else default


def _keep_interrupt() -> None:
    """Let a program that an interrupt ended still end by SIGINT.

    The interpreter forgets that it must when modules are imported at exit, and is reminded by
    what made it know: an interrupt that leaves executed code.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")
