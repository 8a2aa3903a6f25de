"""The parent's end: starts the engine's process, talks to it, and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bubblescope.capture.cupti import library
from bubblescope.errors import BubblescopeError

ROOT = Path(__file__).parents[3]
STOP_S = 30
"""How long an engine may take to end by itself."""
GONE_S = 10
"""How long its processes may take to be gone after they were killed."""
Progress = Callable[[str, float], None]


class Link:
    """One engine process and all that it started, from `__init__` to `close`.

    folder: where the plugin writes recordings and notes; it is gone after `close`, but for a copy
    of the log of an engine that failed. over: whether the engine ended, and must be started anew.
    """

    def __init__(self, arguments: dict[str, Any], environment: dict[str, str]) -> None:
        """Start the process; `wait` returns when the engine is up."""
        self._kept = tempfile.TemporaryDirectory(prefix="bubblescope-sglang-")
        self.folder = Path(self._kept.name)
        _write_plugin(self.folder)
        self.log = self.folder / "engine.log"
        read, write = os.pipe()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bubblescope.targets.sglang.engine", str(write)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(write,),
                env=self._environment(environment),
                start_new_session=True,
            )
        os.close(write)
        self._answers = os.fdopen(read, "rb", buffering=0)
        self._unread = b""
        self._up = self.over = False
        self._sockets: list[str] = []
        self._send({"arguments": arguments})

    def ask(self, progress: Callable[[], None] = lambda: None, **order: Any) -> dict[str, Any]:
        """Give an order and wait for its answer."""
        self._send(order)
        return self.wait(progress)

    def wait(self, progress: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The next answer; `progress` is called twice a second until then.

        Raises:
            BubblescopeError: the engine failed or its process ended; with the last of its log.
        """
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], 0.5)
            progress()
            if ready:
                more = os.read(self._answers.fileno(), 1 << 20)
                if not more:
                    raise self._ended()
                self._unread += more
            elif self._process.poll() is not None:
                # Something that it forked holds its end of the pipe open.
                raise self._ended()
        line, _, self._unread = self._unread.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        if not said.pop("ok"):
            self.over = bool(said.get("ended"))
            raise self.failed(said["problem"])
        self._up = True
        self._sockets += said.pop("sockets", [])
        return said

    def close(self) -> None:
        """End the engine and everything that it started."""
        process = self._process
        if process.stdin is not None:
            # An engine that is gone already took what it had not read with it.
            with contextlib.suppress(OSError):
                process.stdin.close()
        if self._up:  # one that is still starting hears nothing, and has nothing to save
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(STOP_S)
        # Its children are in its process group, whatever became of it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # Memory of a device is given back when the last of them is gone, and not before.
        deadline = time.monotonic() + GONE_S
        with contextlib.suppress(KeyboardInterrupt):
            while _alive(process.pid) and time.monotonic() < deadline:
                time.sleep(0.05)
        self._answers.close()
        for path in self._sockets:
            Path(path).unlink(missing_ok=True)
        self._kept.cleanup()

    def _send(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        env = os.environ | more
        env["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(self.folder / "plugin"), os.environ.get("PYTHONPATH"), str(ROOT)])
        )
        env["BUBBLESCOPE_SGLANG"] = str(self.folder)
        cupti = library.find()
        if cupti is not None:
            # SGLang imports torch before it loads plugins, and torch would load its own CUPTI.
            env["LD_LIBRARY_PATH"] = os.pathsep.join(
                filter(None, [str(cupti.parent), os.environ.get("LD_LIBRARY_PATH")])
            )
        return env

    def _ended(self) -> BubblescopeError:
        self.over = True
        return self.failed("its process ended")

    def failed(self, problem: str) -> BubblescopeError:
        """An error of one line; the log is kept, since only it says why."""
        kept = Path(tempfile.gettempdir()) / f"bubblescope-sglang-{int(time.time())}.log"
        text = self.log.read_text(encoding="utf-8", errors="replace")
        kept.write_text(text, encoding="utf-8")
        return BubblescopeError(f"target sglang: {problem}{_last(text)}; its log: {kept}")


def _alive(group: int) -> bool:
    """Whether a process of the group still runs; one that waits to be reaped does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (name) state parent group ...; a name may hold anything.
            state, _, found = stat.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):  # gone while it was looked at
            continue
        if int(found) == group and state != "Z":
            return True
    return False


def _last(log: str) -> str:
    """The last line of a log that looks like an error's."""
    lines = [line.strip() for line in log.splitlines()]
    errors = [x for x in lines if x.partition(":")[0].endswith(("Error", "Exception", "Killed"))]
    return f" ({errors[-1][:300]})" if errors else ""


def _write_plugin(folder: Path) -> None:
    """A distribution that exists only for this engine: SGLang finds plugins by entry points."""
    info = folder / "plugin" / "bubblescope_in_sglang-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: bubblescope-in-sglang\nVersion: 0\n"
    )
    (info / "entry_points.txt").write_text(
        "[sglang.srt.plugins]\nbubblescope = bubblescope.targets.sglang.plugin:load\n"
    )
