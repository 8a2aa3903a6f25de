"""Records this process until it ends, and writes one file; changes nothing else."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from bubblescope.capture import leaving, notes, torch_cuda
from bubblescope.capture.assemble import assemble
from bubblescope.capture.backend import NothingRecorded
from bubblescope.capture.later import DELAY_S
from bubblescope.capture.marks import StepMarks
from bubblescope.capture.notes import Note
from bubblescope.timeline import bscope

LEAVE_S = 30.0
"""How long a process that leaves by os._exit, perhaps because it hangs, is kept for its file."""


class Recorder:
    """Records this process until it ends or the limit is reached.

    Its file is written in both cases: a process that is killed after the limit has written its
    file already.
    """

    def __init__(self, plan: dict[str, Any], backend: Any = None, seconds: float = 0.0) -> None:
        """Prepare; nothing is recorded before `begin`.

        Args:
            plan: folder, level, limit, sites, cupti (the library's path or None), as `command`
                sends them.
            backend: what records, CUPTI where None.
            seconds: stop after so long; 0 for a backend that keeps the plan's limit itself.
        """
        self._folder, self._process = Path(plan["folder"]), os.getpid()
        self._rank, self._seconds = rank(), seconds
        self._enough = threading.Event()
        self._lock = threading.RLock()
        self._done = False
        self._finishing = 0
        self._signal = 0
        self._backend = backend or self._cupti(plan)

    def _cupti(self, plan: dict[str, Any]) -> Any:
        from bubblescope.capture.cupti import CuptiBackend

        return CuptiBackend(
            plan["level"],
            sites=plan["sites"],
            limit=plan["limit"],
            full=self._enough.set,
            path=Path(plan["cupti"]),
            rank=self._rank,
        )

    def begin(self) -> str:
        """Record from now on; why not, where it cannot: no problem ever reaches the program."""
        try:
            self._backend.start()
        except Exception as error:  # the program must run as it would have
            self._done = True
            return str(error)
        notes.write(self._folder, Note(self._process, "idle", notes.UNFINISHED))
        threading.Thread(target=self._watch, name="bubblescope", daemon=True).start()
        atexit.register(self.finish)
        leaving.before_exit(self._leave)
        os.register_at_fork(after_in_child=self._forked)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, self._terminated)
        return ""

    def finish(self, synchronise: bool = True) -> None:
        """Stop and write the file, once."""
        with self._lock:
            if self._done or os.getpid() != self._process:
                return
            self._done, self._finishing = True, threading.get_ident()
            try:
                self._write(synchronise)
                notes.withdraw(self._folder, self._process)
            except NothingRecorded as error:
                notes.write(self._folder, Note(self._process, "idle", str(error)))
            except Exception as error:  # the program must end as it would have
                text = f"the recording was lost: {str(error) or type(error).__name__}"
                notes.write(self._folder, Note(self._process, "problem", text))
            finally:
                self._finishing = 0
                keep_interrupt()
        if self._signal:
            _end_by(self._signal)

    def _write(self, synchronise: bool) -> None:
        tables = self._backend.stop(synchronise)
        if not len(tables.device_ops) and not len(tables.host_calls):
            return
        name = " ".join(["python", *sys.argv])
        timeline = assemble(self._backend, tables, StepMarks().table(), name, rank=self._rank)
        bscope.write(timeline, self._folder / f"{self._process}.bscope")

    def _watch(self) -> None:
        self._enough.wait(self._seconds or None)
        # Other threads are at work: one may be capturing a graph, which a synchronise would break.
        self.finish(synchronise=False)

    def _leave(self) -> None:
        """Before os._exit, in this process alone; one that hangs must still be able to leave."""
        finishing, mine = self._finishing, os.getpid() == self._process
        if not mine or finishing == threading.get_ident() or (self._done and not finishing):
            return
        thread = threading.Thread(target=self.finish, args=[False], daemon=True)
        with contextlib.suppress(RuntimeError):  # none can start while the interpreter ends
            thread.start()
            thread.join(LEAVE_S)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        if self._finishing == threading.get_ident():
            self._signal = number  # it came while this very thread writes the file
            return
        in_callback = getattr(self._backend, "in_callback", None)
        if in_callback is not None and in_callback(frame):
            again = threading.Timer(DELAY_S, signal.raise_signal, [number])
            again.daemon = True
            again.start()
            return
        self.finish()
        _end_by(number)

    def _forked(self) -> None:
        """A forked child does not record: neither CUPTI nor torch.profiler survives a fork."""
        if self._done:
            return
        self._done = True
        forked = getattr(self._backend, "forked", None)
        if forked is not None:
            forked()
        torch_cuda.at_first_use(
            lambda: notes.write(self._folder, Note(os.getpid(), "forked", self._backend.title))
        )


def rank() -> int:
    """The rank of this process, as launchers state it; 0 where none does."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def keep_interrupt() -> None:
    """Let a program that an interrupt ended still end by SIGINT.

    The interpreter forgets that it must when modules are imported at exit, and is reminded by
    what made it know: an interrupt that leaves executed code.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")
