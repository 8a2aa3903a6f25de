"""Kernels of the embedded loop: our own recording, nsight-python's durations, ncu's counters."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from bubblescope.capture.backend import Backend, Prepared
from bubblescope.diagnose import diagnose
from bubblescope.doctor import needs
from bubblescope.doctor.machine import older
from bubblescope.doctor.tools import Copy
from bubblescope.errors import BubblescopeError
from bubblescope.kernels import beside, ncu
from bubblescope.kernels.asked import Asked, Run
from bubblescope.kernels.child import INSTALL
from bubblescope.kernels.model import Kernels
from bubblescope.kernels.names import function
from bubblescope.kernels.process import ask
from bubblescope.kernels.table import tabulate
from bubblescope.targets import registry as targets
from bubblescope.targets.record import Recording, record
from bubblescope.targets.target import Target
from bubblescope.timeline import Timeline

NAME = "ling"
NCU_STEP, NCU_STEPS = 0, 1
"""Steps that run under ncu: it launches the nodes of graphs one by one, and takes milliseconds for
each that it profiles."""
HOT = 10
"""Rows that ncu is asked for."""
DRAM_LAUNCHES = 500
"""Launches that ncu profiles at most, where nothing else is said."""
Show = Callable[[str, float], None]


def kernels(
    run: Run,
    *,
    by: str = "name",
    nsight: bool = True,
    dram: bool = False,
    dram_launches: int = DRAM_LAUNCHES,
    show: Show = lambda _stage, _share: None,
) -> tuple[Timeline, Kernels]:
    """Record steps of the embedded loop at node level, and tabulate its kernels.

    On CUDA nsight-python measures first, in a process of its own, then the steps are recorded in
    this one, then ncu counts the hottest kernels in another.

    Args:
        run: which steps, of what.
        by: "name" or "family".
        nsight: measure with nsight-python too; the CPU stream thread has no need of it.
        dram: count DRAM bytes of the `HOT` longest rows too.
        dram_launches: launches that ncu profiles at most.
        show: called with what is being done and the share done.

    Raises:
        BubblescopeError: something that was asked for is not here, or failed.
    """
    from optimizations.registry import applied

    target = targets.get(
        NAME, device=run.device, accept_length=run.accept_length, layers=run.layers
    )
    cuda = _on_cuda(run)
    if dram and not cuda:
        raise BubblescopeError("--dram: the CPU stream thread has no counters; use --device cuda")
    copy = ncu.find() if dram else None
    answer = None
    if nsight and cuda:
        _need_nsight()
        show("measuring with nsight-python", 0.0)
        answer = ask(Asked("cupti", run))
    with applied(run.passes, target):
        recording, backend = _record(target, run, show)
    diagnosis = diagnose(recording.timeline, window=recording.window, progress=show)
    table = tabulate(recording.timeline, diagnosis, by=by, durations=backend.title)
    if answer is not None:
        table = beside.with_nsight(table, answer, run.steps)
    if copy is not None:
        show("counting DRAM bytes with ncu", 0.0)
        table = _with_dram(table, recording.timeline, run, copy, dram_launches)
    return recording.timeline, table


def _on_cuda(run: Run) -> bool:
    import torch

    here = bool(torch.cuda.is_available())
    if run.device == "cuda" and not here:
        raise BubblescopeError(
            "torch finds no CUDA device, so there is nothing for nsight-python or ncu to measure; "
            "use --device cpu, and see `bubblescope doctor`"
        )
    return here and run.device != "cpu"


def _need_nsight() -> None:
    """Say at once what is missing, not after minutes."""
    from bubblescope.capture.cupti import library

    without = "or leave it out with --no-nsight"
    if find_spec("nsight") is None:
        raise BubblescopeError(f"nsight-python is not installed; {INSTALL}, {without}")
    if library.find() is None:
        raise BubblescopeError(
            f"nsight-python needs CUPTI 13.4 or later, which was not found; {INSTALL}, {without}"
        )


def _record(target: Target, run: Run, show: Show) -> tuple[Recording, Backend]:
    backends = target.backends()
    backend = next((b for b in backends if b.level == "node"), backends[0])
    if isinstance(backend, Prepared):
        backend.prepare()
    show("starting", 0.0)
    target.start()
    try:
        return record(target, backend, first=run.step, steps=run.steps, progress=show), backend
    finally:
        target.stop()


def _with_dram(table: Kernels, timeline: Timeline, run: Run, copy: Copy, launches: int) -> Kernels:
    short = Run(run.device, run.passes, run.accept_length, run.layers, NCU_STEP, NCU_STEPS)
    if not older(copy.version, needs.NCU):
        return beside.with_dram_of_nsight(table, ask(Asked("ncu", short)), copy.version)
    rows = tabulate(timeline, table.diagnosis).rows
    functions = {function(row.name) for row in [r for r in rows if r.kind == "kernel"][:HOT]}
    with tempfile.TemporaryDirectory(prefix="bubblescope-") as folder:
        log = Path(folder, "ncu.csv")
        try:
            ask(
                Asked("steps", short),
                under=lambda words: ncu.command(copy.path, functions, launches, log, words),
            )
        except BubblescopeError:
            if log.is_file():  # what ncu itself says goes first
                ncu.raise_errors(_text(log))
            raise
        if not log.is_file():
            raise BubblescopeError(f"ncu {copy.version} ({copy.path}) wrote no output")
        return beside.with_dram(table, ncu.parse(_text(log)), copy.version)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
