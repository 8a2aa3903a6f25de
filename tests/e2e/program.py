"""The program as a process of its own, and a small recording for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TRACES = Path(__file__).parents[2] / "traces"
SYNC = TRACES / "ling3-h200-seqlen-sync.bscope"
COLOURS = {"NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS"}
ENV = {k: v for k, v in os.environ.items() if k not in COLOURS} | {"TERM": "xterm-256color"}
Result = subprocess.CompletedProcess[bytes]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "bubblescope", "diagnose", *map(str, arguments)]


def run(*arguments: str | Path, env: dict[str, str] | None = None) -> Result:
    return subprocess.run(
        command(*arguments), capture_output=True, timeout=60, check=False, env=ENV | (env or {})
    )


def report(*arguments: str | Path) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def refusal(done: Result) -> str:
    """The one line that says why; exit code 2, and nothing else anywhere."""
    assert (done.returncode, done.stdout) == (2, b"")
    text = done.stderr.decode()
    assert text.startswith("bubblescope: ")
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    return text[len("bubblescope: ") : -1]


def event(cat: str, name: str, ts: float, dur: float, **args: int) -> dict[str, Any]:
    device = cat == "kernel"
    where = {"pid": 0, "tid": 7} if device else {"pid": 41, "tid": 42}
    more = {"device": 0, "stream": 7} if device else {}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args | more} | where


def decode_loop(steps: int = 6) -> list[dict[str, Any]]:
    """Steps 100 us apart, t = 100 k: kernels [t+20,t+80), a read that waits [t+20,t+85).

    So each bubble is [t+80,t+120): read tail 5, host gap 25, launch call [t+110,t+115), latency 5.
    """
    found = []
    for k in range(steps):
        t = 100 * k
        found += [
            event("user_annotation", f"decode {k}", t, 50),
            event("python_function", "serve.py(12): decode", t + 1, 89),
            event("cuda_runtime", "cudaLaunchKernel", t + 10, 5, correlation=3 * k),
            event("cuda_runtime", "cudaLaunchKernel", t + 16, 2, correlation=3 * k + 1),
            event("cuda_runtime", "cudaStreamSynchronize", t + 20, 65, correlation=3 * k + 2),
            event("kernel", "one", t + 20, 30, correlation=3 * k),
            event("kernel", "two", t + 50, 30, correlation=3 * k + 1),
        ]
    return found


def listing(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
